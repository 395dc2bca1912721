"""A small LSTM language model over characters (Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

from torch import Tensor, nn


class LSTM(nn.Module):
    """Predicts the next character."""

    def __init__(self, vocabulary: int, *, layers: int = 1, width: int = 128, dropout: float = 0.1) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(
            width, width, num_layers=layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Next-character logits (batch, time, vocabulary) of character numbers (batch, time)."""
        states, _ = self.recurrent(self.dropout(self.token(tokens)))
        logits: Tensor = self.head(self.dropout(states))
        return logits
