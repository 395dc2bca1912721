"""A model trained by Hugging Face's Trainer, which follows; it can kill itself. Nothing is downloaded."""

import os
import random
import signal

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from trainers.frameworks.huggingface import follow


class Augmented(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return {"x": torch.full((4,), index / 22) + 0.1 * torch.rand(4), "labels": torch.tensor([random.random()])}


class Model(nn.Module):
    def __init__(self, kill_after_step):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
        self.kill_after_step, self.calls = kill_after_step, 0

    def forward(self, x, labels):
        found = self.net(x)
        return {"loss": functional.mse_loss(found, labels), "logits": found}


def noisy(samples):
    """A collator that draws, as those of masked language models do."""
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return {**batch, "x": batch["x"] + 0.05 * torch.rand(len(samples), 1)}


class Killed(Trainer):
    kill_after_step = -1

    def training_step(self, *args, **options):
        if self.state.global_step == self.kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(*args, **options)


def main(kill_after_step=-1, accumulate=1, workers=0, steps=24):
    torch.manual_seed(3)
    arguments = TrainingArguments(
        output_dir=os.environ["TRADEWIND_OUTPUT_DIR"],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulate,
        dataloader_num_workers=workers,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        max_steps=steps,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Killed(Model(-1), arguments, data_collator=noisy, train_dataset=Augmented(), eval_dataset=Augmented())
    trainer.kill_after_step = kill_after_step
    follow(trainer)
    trainer.train()


def accelerated(kill_after_step=-1, steps=24):
    """A loop of one's own with Accelerate."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    import trainers

    torch.manual_seed(3)
    accelerator = Accelerator(cpu=True)
    model, optimizer = Model(-1), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    run = trainers.attach(
        model=accelerator.unwrap_model(model),
        optimizer=optimizer.optimizer,
        scheduler=schedule.scheduler,
        loader=DataLoader(Augmented(), batch_size=4, shuffle=True, collate_fn=noisy),
        steps=steps,
    )
    for batch in run.batches():
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        run.step(loss)
        if run.steps_done == kill_after_step:
            os.kill(os.getpid(), signal.SIGKILL)
