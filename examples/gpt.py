"""A character-level GPT on the source text of Python's standard library: a plain PyTorch loop."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import trainers  # <- Tradewind 1
from trainers.data.text import VOCABULARY, CharacterWindows, standard_library_text
from trainers.models import GPT


def main(steps: int = 800, context: int = 48, width: int = 64, lr: float = 3e-3, batch_size: int = 16) -> None:
    data = CharacterWindows(standard_library_text(1_000_000), context)
    model = GPT(VOCABULARY, context, width=width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    loader = DataLoader(data, batch_size, shuffle=True)

    run = trainers.attach(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, steps=steps)  # <- 2
    for tokens, targets in run.batches():  # <- 3: was `in loader`
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        run.step(loss)  # <- 4
        if run.steps_done % 50 == 0:
            print(f"step {run.steps_done}: loss {loss.item():.4f}")
    torch.save(model.state_dict(), run.output_dir / "model.pt")  # <- 5: where `tradewind fetch` finds it


if __name__ == "__main__":
    main()
