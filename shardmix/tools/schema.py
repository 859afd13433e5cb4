"""`shardmix schema`: the features of the records, and the `features=` dict to paste.

Rule 1: the dict is what features=None would infer from the same records (inference.py), so it loads what it was made from.
Rule 2: a feature of two kinds is a finding and is left out of the dict; so is a record that is no Example among those that are.
Rule 3: records that are no Examples at all are described as what they are, and a parser is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from ..errors import CorruptShardError
from ..format.declarations import Feature
from ..format.index import Index
from ..format.infer import SAMPLE_RECORDS, sample_records
from ..format.inference import infer_features_of
from ..format.reader import read_records
from . import options
from .contents import describe_bytes
from .findings import Finding
from .observe import Facts, FeatureFacts, observe
from .shown import format_bytes_value, format_feature
from .survey import Survey, survey_shards
from .texts import format_count, format_table, show

MAX_EXAMPLES_TEXT = 70  # characters of a row
LEAST_ARRAY_BYTES = 16  # of values that are all as long: shorter ones are rather hashes and numbers

_DTYPES = {"bytes": "bytes", "float": "float32", "int64": "int64"}


class CorpusSchema(NamedTuple):
    """What `describe_schema` says."""

    facts: Facts
    features: dict[str, Feature]  # to paste; empty where the records are no Examples
    sequence_features: dict[str, Feature] | None  # None: they are no SequenceExamples


def describe_schema(
    shards: str | Sequence[str], *, all_records: bool = False, index: str = "auto", compression_type: str = "auto"
) -> tuple[CorpusSchema, tuple[Finding, ...]]:
    """What the records hold, from a sample of 256 of them, or from all.

    schema, findings = describe_schema("corpus/train-*.tfrecord")
    dataset = ShardDataset("corpus/train-*.tfrecord", features=schema.features)
    """
    survey = survey_shards(shards, index=index, compression_type=compression_type)
    findings = list(survey.findings)
    payloads = _all_records(survey, findings) if all_records else sample_records(survey.opened, on_corrupt="skip")
    facts = observe(payloads)
    mixed = {name for name, seen in (*facts.context.items(), *facts.lists.items()) if len(seen.kinds) > 1}
    for name in sorted(mixed):
        findings.append(_mixed_kinds(survey.opened, name, facts))
    if 0 < facts.num_examples < facts.num_records:
        number = facts.num_records - facts.num_examples
        text = f"{number} of {facts.num_records} records are no Examples, the first begins {facts.others[0][:16]!r}"
        findings.append(Finding(survey.opened.corpus.parent, "content", text))
    return CorpusSchema(facts, *_infer(facts, mixed)), tuple(findings)


def _infer(facts: Facts, mixed: set[str]) -> tuple[dict[str, Feature], dict[str, Feature] | None]:
    """The dicts to paste."""
    context = {name: seen.seen for name, seen in facts.context.items() if name not in mixed}
    lists = {name: seen.seen for name, seen in facts.lists.items() if name not in mixed}
    features = infer_features_of(context, None, facts.num_examples, in_lists=False)
    if not facts.is_sequence:
        return features, None
    return features, infer_features_of(lists, None, facts.num_examples, in_lists=True)


def _all_records(survey: Survey, findings: list[Finding]) -> Iterator[memoryview]:
    index = survey.opened
    for shard in range(len(index)):
        if index.counts[shard]:
            try:
                yield from read_records(index.path(shard), compression_type=index.compression(shard))
            except CorruptShardError as damage:
                found = Finding.of_damage(damage, more="; this shard was looked at up to here")
                if not any((known.path, known.offset) == (found.path, found.offset) for known in findings):
                    findings.append(found)


def _mixed_kinds(index: Index, name: str, facts: Facts) -> Finding:
    seen = facts.context.get(name) or facts.lists[name]
    kinds = ", ".join(f"{_DTYPES[kind]} in {number}" for kind, number in sorted(seen.kinds.items()))
    text = f"feature {name!r} is of several kinds ({kinds} of {facts.num_examples} records); it is left out of the dict"
    return Finding(index.corpus.parent, "content", text)


# --- As text -----------------------------------------------------------------------------------------------------------------


def format_schema(schema: CorpusSchema) -> list[str]:
    """The same for people: a table, and a dict to paste."""
    facts = schema.facts
    if not facts.num_records:
        return ["no records"]
    if not facts.num_examples:
        payloads = facts.others + facts.blanks
        what = describe_bytes(payloads) or "bytes of no format that shows itself"
        sizes = sorted(map(len, payloads))
        return [
            f"{format_count(facts.num_records, 'record')} looked at: no tf.train.Examples; payloads of {sizes[0]:,} to "
            f"{sizes[-1]:,} bytes: {what}",
            *(f"  {format_bytes_value(payload)}" for payload in payloads[:3]),
            "for records of another format subclass ShardDataset and write parse(self, record)",
        ]
    kind = "SequenceExamples" if facts.is_sequence else "Examples"
    lines = [f"{format_count(facts.num_records, 'record')} looked at, {kind}:", ""]
    rows = [["feature", "kind", "values", "present", "what, and examples"]]
    rows += [_row(name, seen, facts.num_examples) for name, seen in sorted(facts.context.items())]
    rows += [_row(name, seen, facts.num_examples) for name, seen in sorted(facts.lists.items())]
    lines += [*format_table(rows), "", *format_dict("features", schema.features, facts.context)]
    if schema.sequence_features is not None:
        lines += format_dict("sequence_features", schema.sequence_features, facts.lists)
    return lines


def format_dict(name: str, features: dict[str, Feature], facts: dict[str, FeatureFacts]) -> list[str]:
    """Lines of Python: `features = { … }`, with what bytes are as comments."""
    lines = [f"{name} = {{"]
    for key, feature in features.items():
        content = _describe_content(facts[key])
        lines.append(f"    {key!r}: {feature!r}," + (f"  # {content}" if content else ""))
    return [*lines, "}"]


def _row(name: str, facts: FeatureFacts, num_examples: int) -> list[str]:
    kinds = " or ".join(_DTYPES[kind] for kind in sorted(facts.kinds)) or "no kind"
    examples = "; ".join(format_feature(example)[1] for example in facts.examples)
    examples = examples if len(examples) <= MAX_EXAMPLES_TEXT else examples[:MAX_EXAMPLES_TEXT] + " …"
    content = _describe_content(facts)
    where = f"{name} (list of {_range(facts.steps)} steps)" if facts.steps else name
    shown = examples if content is None or examples.startswith(content) else f"{content}: {examples}"
    return [where, kinds, _range(facts.seen.lengths), _presence(facts, num_examples), shown]


def _presence(facts: FeatureFacts, num_examples: int) -> str:
    """How often it is set, and what it is otherwise."""
    if facts.steps:
        words = [f"{facts.num_records / num_examples:.0%} of records"]
        missing = 0
    else:
        words = ["always"] if facts.seen.num_set == num_examples else [f"{facts.seen.num_set / num_examples:.1%}"]
        missing = num_examples - facts.num_records
    others = (("missing", missing), ("unset", facts.seen.num_unset), ("empty", facts.num_empty))
    return ", ".join([*words, *(f"{name} {number:,}" for name, number in others if number)])


def _describe_content(facts: FeatureFacts) -> str | None:
    content = facts.content()
    if content is None and len(facts.looked_at) > 1 and len(facts.byte_lengths) == 1:
        (length,) = facts.byte_lengths
        if length < LEAST_ARRAY_BYTES:
            return None
        return f"always {length:,} bytes: an array would be RawFeature(shape, dtype)"
    return content


def _range(numbers: set[int]) -> str:
    least, most = min(numbers, default=0), max(numbers, default=0)
    return str(least) if least == most else f"{least} to {most}"


# --- As data -----------------------------------------------------------------------------------------------------------------


def as_data(schema: CorpusSchema) -> dict[str, Any]:
    """The same for JSON; the dicts to paste as text."""
    facts = schema.facts
    return {
        "records": facts.num_records,
        "examples": facts.num_examples,
        "kind": None if not facts.num_examples else "SequenceExample" if facts.is_sequence else "Example",
        "payloads": None if facts.num_examples else describe_bytes(facts.others + facts.blanks),
        "features": {name: _facts_as_data(seen, schema.features.get(name)) for name, seen in sorted(facts.context.items())},
        "sequence_features": {
            name: _facts_as_data(seen, (schema.sequence_features or {}).get(name)) for name, seen in sorted(facts.lists.items())
        },
    }


def _facts_as_data(facts: FeatureFacts, feature: Feature | None) -> dict[str, Any]:
    lengths = facts.seen.lengths
    return {
        "kinds": dict(facts.kinds),
        "values": [min(lengths, default=0), max(lengths, default=0)],
        "steps": [min(facts.steps), max(facts.steps)] if facts.steps else None,
        "records": facts.num_records,
        "set": facts.seen.num_set,
        "unset": facts.seen.num_unset,
        "empty": facts.num_empty,
        "content": facts.content(),
        "examples": facts.examples,
        "feature": None if feature is None else repr(feature),
    }


@click.command()
@options.patterns
@click.option("--all", "all_records", is_flag=True, help=f"Look at every record, not at a sample of {SAMPLE_RECORDS}.")
@options.index
@options.compression
@options.as_json
def command(patterns: tuple[str, ...], all_records: bool, index: str, compression_type: str, as_json: bool) -> int:
    """Say what the records hold: features, kinds, shapes, how often present, what bytes are; and the dict to paste.

    \b
    shardmix schema 'corpus/train-*.tfrecord'
    shardmix schema corpus --all
    shardmix schema corpus --json | jq '.features | keys'
    """
    schema, findings = describe_schema(patterns, all_records=all_records, index=index, compression_type=compression_type)
    return show(as_data(schema), format_schema(schema), findings, as_json=as_json)
