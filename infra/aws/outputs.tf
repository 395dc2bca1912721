output "store_root" {
  description = "For tradewind.toml."
  value       = "s3://${aws_s3_bucket.store.bucket}/tradewind"
}

output "machines_role" {
  description = "machines.role in tradewind.toml."
  value       = aws_iam_role.machines.arn
}

output "control_plane_policy" {
  description = "The policy to attach to the control plane's user or role."
  value       = aws_iam_policy.control_plane.arn
}

output "interruption_queue" {
  description = "The queue of interruption notices; null without one."
  value       = one(aws_sqs_queue.interruptions[*].url)
}
