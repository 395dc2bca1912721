variable "install" {
  description = "The id of the installation, which `tradewind doctor` prints (tw-...). Tradewind finds the network by it."
  type        = string
}

variable "bucket" {
  description = "The name of the bucket for orders, reports and checkpoints: store_root = \"s3://BUCKET/tradewind\"."
  type        = string
}

variable "policy" {
  description = "The policy of the control plane: the output of `tradewind doctor --policy aws`."
  type        = string
  validation {
    condition     = can(jsondecode(var.policy).Statement)
    error_message = "This is not a policy: tradewind doctor --policy aws > policy.json, then policy = file(\"policy.json\")."
  }
}

variable "control_plane" {
  description = "The ARN of the control plane's user or role, which may give machines a part of its access."
  type        = string
}

variable "interruption_queue" {
  description = "Whether EC2's interruption notices of this region are also sent to a queue, for your own alarms."
  type        = bool
  default     = false
}
