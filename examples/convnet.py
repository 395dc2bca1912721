"""A convolutional network on synthetic images, with random flips and shifts: a plain PyTorch loop."""

import random

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import trainers  # <- Tradewind 1
from trainers.data.images import CLASSES, Shapes
from trainers.models import ConvNet


class Augmented(Dataset[tuple[Tensor, int]]):
    """Random augmentation is safe: Tradewind seeds it by (seed, epoch, index), so it is repeated exactly after a
    move."""

    def __init__(self, data: Shapes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, kind = self.data[index]
        shift = (random.randint(-2, 2), random.randint(-2, 2))
        flipped = image.flip(-1) if torch.rand(()) < 0.5 else image
        return flipped.roll(shift, dims=(-2, -1)), kind


def main(steps: int = 750, width: int = 12, images: int = 8192, lr: float = 0.05, batch_size: int = 12) -> None:
    model = ConvNet(len(CLASSES), width=width)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    loader = DataLoader(Augmented(Shapes(images, seed=1)), batch_size, shuffle=True)

    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, steps=steps)  # <- 2
    for pictures, kinds in run.batches():  # <- 3: was `in loader`
        loss = functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.step(loss)  # <- 4
        if run.steps_done % 50 == 0:
            print(f"step {run.steps_done}: loss {loss.item():.4f}")
    torch.save(model.state_dict(), run.output_dir / "model.pt")  # <- 5: where `tradewind fetch` finds it


if __name__ == "__main__":
    main()
