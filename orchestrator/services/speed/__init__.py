"""A job's speed before it runs: profiles, trials and imported throughputs."""
