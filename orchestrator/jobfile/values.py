"""The types of single values in a job file: each reads the value from YAML, or reports the mistake and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, PlainValidator, ValidationInfo

from orchestrator import model
from orchestrator.errors import did_you_mean
from orchestrator.jobfile import units
from orchestrator.jobfile.program.entrypoint import ENTRY_PATTERN, entry_hint
from orchestrator.jobfile.units import BadValueError, quoted
from orchestrator.model import LEAST_RATE, MOST_RATE, GpuRequest, is_id
from providers import hardware
from providers.hardware import GPUS, gpus_counted, gpus_named
from providers.offer import CapacityType

MOST_LABELS = 64  # every event and ledger entry of the job carries them
LONGEST_LABEL = 256  # characters
LONGEST_COMMAND_BYTES = 100_000  # Linux takes at most 128 KiB as one argument
_TAKEN_VARIABLES = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    hint = "" if isinstance(value, dict | list) else "put it in quotes"
    raise BadValueError(f"must be text, not {quoted(value)}", hint)


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    digits = value.strip() if isinstance(value, str) else ""
    hint = f"write {digits}, without quotes" if digits.isdecimal() and len(digits) < 20 else "write only digits"
    raise BadValueError(f"must be a whole number, not {quoted(value)}", hint)


def _yes_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.casefold() if isinstance(value, str) else ""
    meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word, "")
    raise BadValueError(f"must be true or false, not {quoted(value)}", f"write {meant}" if meant else "")


def _weight(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e6:
        return float(value)
    raise BadValueError("must be a number, 0 or more")


def _matching(pattern: str, rule: str, *, secret: bool = False) -> Callable[[object], str]:
    """Text that fully matches `pattern`; `secret` values are never repeated in a message."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        if not isinstance(value, str) and not secret:
            _text(value)
        raise BadValueError(rule if secret else f"{quoted(value)} {rule}")

    return read


def _one_of(*options: str, hints: Mapping[str, str] = MappingProxyType({})) -> Callable[[object], str]:
    """One of these words; `hints` are remedies for other words, in lower case."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in options:
            return value
        word = str(value).casefold() if isinstance(value, str | int) else ""
        hint = hints.get(word) or did_you_mean(word, options)
        raise BadValueError(f"{quoted(value)} is not one of {', '.join(options)}", hint)

    return read


def _entry(value: object) -> str:
    text = _text(value)
    if ENTRY_PATTERN.fullmatch(text):
        return text
    raise BadValueError(f"{quoted(value)} is not of the form module:function", entry_hint(text))


def _variable(value: object) -> str:
    name = _matching(r"[A-Za-z_][A-Za-z0-9_]{0,254}", "must be a name such as HF_HOME", secret=True)(value)
    if name.startswith("TRADEWIND_") or name in _TAKEN_VARIABLES:
        raise BadValueError(f"{name} is set by Tradewind itself", "use another name")
    return name


def _setting_text(value: object) -> str:
    """Text or a whole number. The value does not appear in any message, because it may be a secret."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadValueError("must be text", "" if isinstance(value, dict | list) else "put it in quotes")


def _label(value: object) -> str:
    text = _setting_text(value)
    if len(text) > LONGEST_LABEL:
        raise BadValueError(f"is longer than {LONGEST_LABEL} characters", "shorten it")
    return text


def _few_labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > MOST_LABELS:
        raise BadValueError(f"has {len(labels)} labels; at most {MOST_LABELS} are allowed", "delete some")
    return labels


def _gpus(value: object) -> tuple[GpuRequest, ...]:
    """All kinds of GPU that an entry such as `A100:8` means."""
    if (hint := _counted_hint(value)) is not None:
        raise BadValueError(f"{quoted(value)} is not a GPU with a count", hint)
    name, colon, count = _text(value).partition(":")
    if colon and not re.fullmatch(r"\s*[1-9]\d{0,3}\s*", count, re.ASCII):
        raise BadValueError(f"{quoted(value)} is not a GPU with a count", _count_hint(name, count))
    kinds = gpus_named(name)
    if not kinds:
        hint = did_you_mean(name.strip(), GPUS) or f"known: {', '.join(GPUS)}"
        raise BadValueError(f"unknown GPU {quoted(name.strip())}", hint)
    return tuple(GpuRequest(kind, int(count) if colon else 1) for kind in kinds)


def _counted_hint(value: object) -> str | None:
    """What to write for a bare number, or for a count in another form, such as `8xH100`; None if `value` is neither."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if text.strip().isdecimal():
        kinds = gpus_named(text)
        if kinds and isinstance(value, str):
            return None
        return f'write "{kinds[0]}"' if kinds else f'name the kind, such as "H100:{text.strip()}"'
    found = gpus_counted(text)
    return found and f'write "{found[0]}:{found[1]}"'


def _count_hint(name: str, count: str) -> str:
    """`8:H100` and `A100:80GB` are forms of other tools."""
    if gpus_named(count) and name.strip().isdigit():
        return f'write "{count.strip()}:{name.strip()}"'
    memory = count.partition(":")[0].strip()
    if len(kinds := gpus_named(f"{name}-{memory}")) == 1:
        return f'write "{kinds[0]}"'
    return 'write it like "H100:8"'


def _gpu(value: object) -> GpuRequest:
    kinds = _gpus(value)
    if len(kinds) > 1:
        names = " or ".join(kind.name for kind in kinds)
        raise BadValueError(f"{quoted(value)} may be several kinds of GPU", f"write {names}")
    return kinds[0]


def _distinct_gpus(entries: tuple[tuple[GpuRequest, ...], ...]) -> tuple[tuple[GpuRequest, ...], ...]:
    _distinct(tuple(request for entry in entries for request in entry))
    return entries


def _args(value: object) -> Mapping[str, Any] | tuple[str, ...]:
    """Arguments by name; or a list of words, which a script gets unchanged."""
    if isinstance(value, list):
        return tuple(map(_word, value))
    if not isinstance(value, dict):
        hint = f"write [{', '.join(value.split())}]" if isinstance(value, str) and value.split() else ""
        raise BadValueError(f"must be a mapping of names to values or a list of words, not {quoted(value)}", hint)
    for name, arg in value.items():
        inner = arg.values() if isinstance(arg, dict) else arg if isinstance(arg, list) else ()
        if any(isinstance(item, dict | list) for item in inner):
            raise BadValueError(
                f"the argument {quoted(name)} is nested deeper than one list or mapping of plain values",
                "pass the path of a file instead",
            )
    return value


def _word(value: object) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise BadValueError(f"in a list, each argument must be text, not {quoted(value)}", "put it in quotes")


def _requirements(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(packages, files): a path names a requirements file, a list names packages."""
    if isinstance(value, str) and value.strip():
        return (), (value,)
    if isinstance(value, list) and value:
        for each in value:
            if not isinstance(each, str) or not each.strip().isprintable() or each.strip()[:1] in ("", "-"):
                raise BadValueError(
                    f"{quoted(each)} is not a package", 'write names such as "tqdm>=4"; options go in setup'
                )
        return tuple(value), ()
    raise BadValueError(
        f"must be a path or a list of packages, not {quoted(value)}", 'write "requirements.txt" or [tqdm]'
    )


def _command(value: object) -> str:
    text = _text(value)
    if not text.strip():
        raise BadValueError("must not be empty")
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST_COMMAND_BYTES:
        raise BadValueError(f"is longer than {LONGEST_COMMAND_BYTES} bytes", 'move it to a file: "bash setup.sh"')
    return text


def _python(value: object) -> str:
    text = _text(value)
    if not (match := re.fullmatch(r"3\.(\d{1,2})", text, re.ASCII)):
        raise BadValueError(f"{quoted(value)} is not a Python version", 'write it like "3.12"')
    if int(match[1]) < 11:
        raise BadValueError(f"Python {text} is too old", 'write "3.11" or later')
    return text


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValueError(f"{quoted(value)} is not a number of steps per second", "write it like 2.5")
    if not LEAST_RATE <= value <= MOST_RATE:
        raise BadValueError(f"{quoted(value)} steps/s is not possible", f"between {LEAST_RATE:g} and {MOST_RATE:g}")
    return float(value)


def _one_or_many(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise BadValueError("must name at least one", "or delete the field")
    if len(set(values)) < len(values):
        raise BadValueError("lists the same value twice")
    return values


def read_objective(value: object) -> object:
    """`cheapest`, `fastest` -> their weights; a mapping is read by the section of that name."""
    if isinstance(value, str):
        if "cost" in value and "time" in value:
            raise BadValueError(f"{quoted(value)} is not a valid objective", f"write weights, such as {_WEIGHTS}")
        _OBJECTIVES(value)
        return {"cost": float(value == "cheapest"), "time": float(value == "fastest")}
    if isinstance(value, dict):
        return value
    raise BadValueError(f"{quoted(value)} is not a valid objective", f"write cheapest, fastest or {_WEIGHTS}")


def _deadline(value: object, info: ValidationInfo) -> tuple[float | None, int | None]:
    after_s, at_ms = units.parse_deadline(value)
    now_ms = (info.context or {}).get("now_ms")
    if at_ms is not None and now_ms is not None and at_ms <= now_ms:
        now = datetime.fromtimestamp(now_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
        raise BadValueError(
            f"{quoted(value)} is in the past: it is {now} in market time",
            "choose a later time, or a duration from submission such as 48h",
        )
    return after_s, at_ms


_WEIGHTS = "{cost: 0.7, time: 0.3}"
_CHEAPEST, _FASTEST = ('write "objective: cheapest"', 'write "objective: fastest"')
_ONE_JOB = f"the objective of a job file is for this job only; {_CHEAPEST}"
_OBJECTIVES = _one_of(
    "cheapest",
    "fastest",
    hints={
        "deadline": f'{_CHEAPEST} and, on a separate line, "deadline: 48h"',
        "budget": f'{_FASTEST} and, on a separate line, "budget: 250 USD"',
        "balanced": 'write "objective: {cost: 0.5, time: 0.5}"',
        **dict.fromkeys(("cost", "price", "cheap", "min_cost", "minimize_cost"), _CHEAPEST),
        **dict.fromkeys(("time", "speed", "fast", "throughput", "makespan", "performance", "min_time"), _FASTEST),
        **dict.fromkeys(("fair", "fairness", "finish_time_fairness", "max_min_fairness", "priority", "fifo"), _ONE_JOB),
    },
)
_CAPACITY = _one_of(
    "spot",
    "on_demand",
    hints={
        **dict.fromkeys(("preemptible", "interruptible"), "write spot"),
        **dict.fromkeys(("on-demand", "ondemand", "on demand"), "write on_demand"),
        **dict.fromkeys(("reserved", "dedicated"), "write on_demand, or delete the field"),
        **dict.fromkeys(("any", "auto", "both", "all"), "write [spot, on_demand], or delete the field"),
    },
)
_STANDBY_HINTS = {"true": "write warm", "hot": "write warm", "false": "write none", "cold": "write none"}
_PRECISION_HINTS = {
    "16": "write fp16 or bf16",
    "32": "write fp32",
    "8": "write fp8",
    "half": "write fp16",
    "float16": "write fp16",
    "float32": "write fp32",
    "single": "write fp32",
    "mixed": "write fp16 or bf16",
    "amp": "write fp16 or bf16",
    "bfloat16": "write bf16",
}
_SHARDING_HINTS = {"ddp": "write none", "dp": "write none", "false": "write none", "true": "write fsdp"} | {
    stage: f"write zero{stage}" for stage in ("1", "2", "3")
}
_read_name = _matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
    'is not a valid name: use letters, digits, ".", "_" and "-", at most 63, and begin with a letter or digit',
)


def _unlike_ids(kind: str) -> Callable[[str], str]:
    """A name that cannot be the id of a job or group: commands accept both, and try the id first."""

    def read(name: str) -> str:
        if is_id(kind, name[: len(kind)].lower() + name[len(kind) :].upper()):
            raise BadValueError(f"{quoted(name)} looks like the id of a {kind}", "choose another name")
        return name

    return read


Name = Annotated[str, PlainValidator(_read_name)]
JobName = Annotated[Name, AfterValidator(_unlike_ids("job"))]
GroupName = Annotated[Name, AfterValidator(_unlike_ids("group"))]

NonEmpty = Annotated[str, PlainValidator(_matching(r"(?s).*\S.*", "must not be empty"))]
SettingText = Annotated[str, PlainValidator(_setting_text)]
Labels = Annotated[dict[Name, Annotated[str, PlainValidator(_label)]], AfterValidator(_few_labels)]
Variable = Annotated[str, PlainValidator(_variable)]
Pattern = Annotated[
    str, PlainValidator(_matching(r"[A-Za-z0-9*?\[\]!._-]{1,100}", 'is not a valid name or pattern, such as "eu-*"'))
]
Entry = Annotated[str, PlainValidator(_entry)]
Whole = Annotated[int, BeforeValidator(_whole)]
YesNo = Annotated[bool, PlainValidator(_yes_no)]
Rate = Annotated[float, PlainValidator(_rate)]
Weight = Annotated[float, PlainValidator(_weight)]
Size = Annotated[int, PlainValidator(units.parse_size)]
Bandwidth = Annotated[int, PlainValidator(units.parse_bandwidth)]
SizeRange = Annotated[tuple[int, int | None], PlainValidator(units.parse_size_range)]
Duration = Annotated[float, PlainValidator(units.parse_duration)]
Money = Annotated[int, PlainValidator(units.parse_money)]
Share = Annotated[float, PlainValidator(units.parse_share)]
Capacity = Annotated[CapacityType, PlainValidator(lambda value: CapacityType(_CAPACITY(value)))]
Many = BeforeValidator(_one_or_many)
Distinct = AfterValidator(_distinct)
Gpu = Annotated[GpuRequest, PlainValidator(_gpu)]
Gpus = Annotated[
    tuple[Annotated[tuple[GpuRequest, ...], PlainValidator(_gpus)], ...], Many, AfterValidator(_distinct_gpus)
]
Args = Annotated[Mapping[str, Any] | tuple[str, ...], PlainValidator(_args)]
Command = Annotated[str, PlainValidator(_command)]
Requirements = Annotated[tuple[tuple[str, ...], tuple[str, ...]], PlainValidator(_requirements)]
PythonVersion = Annotated[str, PlainValidator(_python)]
Deadline = Annotated[tuple[float | None, int | None], PlainValidator(_deadline)]
Mount = Annotated[str, PlainValidator(_matching(r"/[^\n]*", "must be an absolute path"))]
Keep = Annotated[
    Literal["all", "last", "best"],
    PlainValidator(_one_of("all", "last", "best", hints={"newest": "write last", "latest": "write last"})),
]
Standby = Annotated[Literal["none", "warm"], PlainValidator(_one_of("none", "warm", hints=_STANDBY_HINTS))]
Precision = Annotated[
    hardware.Precision, PlainValidator(_one_of(*get_args(hardware.Precision), hints=_PRECISION_HINTS))
]
Sharding = Annotated[model.Sharding, PlainValidator(_one_of(*get_args(model.Sharding), hints=_SHARDING_HINTS))]


def is_name(value: object) -> bool:
    """Whether this is a valid job name."""
    try:
        return bool(_read_name(value))
    except BadValueError:
        return False
