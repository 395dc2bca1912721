"""What is known of a job's speed before it runs: profiles, trials, imported throughputs."""
