# What Tradewind needs in one AWS region: a network without access from outside, a bucket, and two sets of permissions.
# `tradewind up --cloud aws` creates the same network by itself: use this module if you use Terraform.

locals {
  tags = { tradewind-install = var.install }
}

data "aws_availability_zones" "here" {
  state = "available"
  filter {
    name   = "zone-type"
    values = ["availability-zone"]
  }
}

# --- network: providers/aws/networks.py says what Tradewind looks for ---

resource "aws_vpc" "machines" {
  cidr_block = "10.83.0.0/16"
  tags       = local.tags
}

resource "aws_internet_gateway" "machines" {
  vpc_id = aws_vpc.machines.id
  tags   = local.tags
}

resource "aws_route" "out" {
  route_table_id         = aws_vpc.machines.main_route_table_id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.machines.id
}

resource "aws_subnet" "machines" {
  for_each             = { for index, zone in sort(data.aws_availability_zones.here.zone_ids) : zone => index }
  vpc_id               = aws_vpc.machines.id
  availability_zone_id = each.key
  cidr_block           = cidrsubnet(aws_vpc.machines.cidr_block, 4, each.value)
  tags                 = local.tags
}

resource "aws_security_group" "machines" {
  name        = "tradewind"
  description = "Machines of Tradewind: nothing is let in from outside"
  vpc_id      = aws_vpc.machines.id
  tags        = local.tags

  ingress {
    description = "between the machines of a job"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    self        = true
  }

  egress {
    description = "packages, the store, services of the cloud"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

# --- store ---

resource "aws_s3_bucket" "store" {
  bucket = var.bucket
  tags   = local.tags
}

resource "aws_s3_bucket_public_access_block" "store" {
  bucket                  = aws_s3_bucket.store.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# Versioning stays off, because it would keep and bill deleted checkpoints.
resource "aws_s3_bucket_lifecycle_configuration" "store" {
  bucket = aws_s3_bucket.store.id
  rule {
    id     = "unfinished-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }
}

# --- permissions ---

resource "aws_iam_policy" "control_plane" {
  name   = "tradewind-control-plane-${var.install}"
  policy = var.policy
  tags   = local.tags
}

# machines.role in tradewind.toml: the highest permissions of a machine. Each machine gets a part, limited to its job.
resource "aws_iam_role" "machines" {
  name                 = "tradewind-machines-${var.install}"
  max_session_duration = 43200
  tags                 = local.tags
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { AWS = var.control_plane } }]
  })
}

resource "aws_iam_role_policy" "machines" {
  name = "store"
  role = aws_iam_role.machines.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = "${aws_s3_bucket.store.arn}/*"
      },
      { Effect = "Allow", Action = "s3:ListBucket", Resource = aws_s3_bucket.store.arn },
    ]
  })
}

# --- notices, for your own alarms: Tradewind itself reads them on the machine and from its spot request ---

resource "aws_sqs_queue" "interruptions" {
  count                     = var.interruption_queue ? 1 : 0
  name                      = "tradewind-interruptions-${var.install}"
  message_retention_seconds = 3600
  sqs_managed_sse_enabled   = true
  tags                      = local.tags
}

resource "aws_sqs_queue_policy" "interruptions" {
  count     = var.interruption_queue ? 1 : 0
  queue_url = aws_sqs_queue.interruptions[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sqs:SendMessage"
      Principal = { Service = "events.amazonaws.com" }
      Resource  = aws_sqs_queue.interruptions[0].arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.interruptions[0].arn } }
    }]
  })
}

resource "aws_cloudwatch_event_rule" "interruptions" {
  count = var.interruption_queue ? 1 : 0
  name  = "tradewind-interruptions-${var.install}"
  tags  = local.tags
  event_pattern = jsonencode({
    source      = ["aws.ec2"]
    detail-type = ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"]
  })
}

resource "aws_cloudwatch_event_target" "interruptions" {
  count = var.interruption_queue ? 1 : 0
  rule  = aws_cloudwatch_event_rule.interruptions[0].name
  arn   = aws_sqs_queue.interruptions[0].arn
}
