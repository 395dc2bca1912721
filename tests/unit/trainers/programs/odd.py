"""Programs that do something unusual."""

import functools
import json
import os
import signal
import sys

import torch

import trainers
from trainers.control import ControlDirectory

data = [1, 2, 3]


def needs(learning_rate):
    pass


def scheduled(steps=800, *, epochs=7, **others):
    """Keeps the length that it got and what attach() returned."""
    model = torch.nn.Linear(1, 1)
    loader = torch.utils.data.DataLoader(torch.zeros(6, 1), batch_size=2)
    run = trainers.attach(model=model, optimizer={}, loader=loader, steps=steps, epochs=epochs)
    (run.output_dir / "lengths").write_text(json.dumps([steps, epochs, sorted(others), run.total_steps]))
    run.stop()
    for _ in run.batches():
        pass


def passes_on(function):
    return functools.wraps(function)(lambda **keywords: function(**keywords))


def takes_nothing(function):
    return functools.wraps(function)(lambda: function())


decorated = passes_on(scheduled)
closed = takes_nothing(scheduled)


def interrupted():
    raise KeyboardInterrupt


def raises_without_a_stderr():
    sys.stderr = None
    raise ValueError("said although there is nowhere to say it")


def leaves():
    sys.exit(0)


def never_attaches():
    pass


def tells_what_is_due():
    progress = ControlDirectory(os.environ["TRADEWIND_CONTROL_DIR"]).progress()
    sys.stdout.write(f"due: {None if progress.still_since_s is None else progress.awaited}\n")


def steps_then(do):
    """Three steps, then `do(run)` within the third."""
    run = trainers.attach(model=torch.nn.Linear(1, 1), optimizer={})
    for number in run.batches():
        run.step(float(number))
        if number == 2 and do(run) == "break":
            break


def stops_early():
    steps_then(lambda run: run.stop())


def shows_what_is_deterministic():
    compiler_loaded = "torch._inductor" in sys.modules
    import torch._inductor.config as compiler

    sys.stdout.write(f"deterministic: {torch.are_deterministic_algorithms_enabled()} {compiler.deterministic}")
    sys.stdout.write(f", compiler loaded before: {compiler_loaded}\n")
    stops_early()


def imports_late():
    steps_then(lambda _: __import__("a_module_that_is_not_here"))


def breaks_off():
    steps_then(lambda _: "break")


def leaves_after_the_last_epoch():
    loader = torch.utils.data.DataLoader(torch.zeros(6, 1), batch_size=2)
    run = trainers.attach(model=torch.nn.Linear(1, 1), optimizer={}, loader=loader, epochs=2)
    for _ in run.batches():
        run.step(1.0)
        if run.steps_done == 6:
            return


def exits_with_0():
    steps_then(lambda _: sys.exit(0))


def attaches_only():
    trainers.attach(model=torch.nn.Linear(1, 1), optimizer={})


def diverges():
    run = trainers.attach(model=torch.nn.Linear(1, 1), optimizer={})
    for number in run.batches():
        run.step(float("nan") if number > 2 else 1.0)


def crashes():
    steps_then(lambda _: os.kill(os.getpid(), signal.SIGSEGV))


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("and its text raises")


def raises_surrogates():
    sys.stdout.write("printed \udcff as well\n")
    raise ValueError("odd \ud800 text")


def raises_unprintable():
    raise Unprintable


def raises_with_notes_that_raise():
    error = ValueError("the real one")
    vars(error)["__notes__"] = Unprintable()
    raise error
