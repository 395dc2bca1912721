"""A small residual convolutional classifier (He et al. 2016, batch norm)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class ConvNet(nn.Module):
    """Classifies one-channel images."""

    def __init__(self, classes: int, *, width: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.stages = nn.Sequential(
            _Residual(width, width, 1), _Residual(width, 2 * width, 2), _Residual(2 * width, 4 * width, 2)
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class logits (batch, classes) of float images (batch, 1, side, side)."""
        features: Tensor = self.stages(self.stem(images)).mean(dim=(2, 3))
        logits: Tensor = self.head(self.dropout(features))
        return logits


class _Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        )
        self.second = nn.Sequential(nn.BatchNorm2d(outer), nn.ReLU(), nn.Conv2d(outer, outer, 3, padding=1, bias=False))
        same = inner == outer and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.shortcut(x) + self.second(self.first(x)))
