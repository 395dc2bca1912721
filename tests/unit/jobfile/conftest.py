"""A folder with code to train, and the job file of the architecture."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with train.py, which defines main() and raises when it is imported."""
    (tmp_path / "train.py").write_text(
        "def main(layers=1, lr=0.1, **others):\n    pass\n\n\nraise RuntimeError('was imported')\n"
    )
    return tmp_path


@pytest.fixture
def whole() -> str:
    return """\
name: gpt-small
project: research
labels: {cost-center: ml-42}
train:
  entry: train:main
  args: {layers: 4, lr: 3.0e-4}
  workdir: .
  env: {HF_HOME: /data/hf}
  secrets: [WANDB_API_KEY]
  steps: 20000
data: [{source: s3://bucket/set, mount: /data, size: 120 GB}]
outputs: [{path: runs/, keep: best}]
resources:
  gpu: [H100:8, A100-80GB:8]
  memory: 64 GB
  nodes: 1
objective: cheapest
deadline: 48h
budget: 250 USD
capacity: [spot, on_demand]
where: {clouds: [aws, gcp], regions: ["eu-*"]}
checkpoint: {to: s3://bucket/ck, keep: 3, max_overhead: 3.5%, max_upload: 50 MB/s}
reproducible: {threads: 1, deterministic: true}
standby: none
probe: true
retries: 5
max_duration: 72h
precision: bf16
sharding: fsdp
"""
