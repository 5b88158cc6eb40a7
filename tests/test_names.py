"""Names in the source are terms of the field; metaphors of the first version do not come back."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "fedbb"

# Each had a term that a reader of the field would search for, and was renamed to it.
RETIRED = """
Absence Alike Ask Bench ClientCard ClientMemory Collector Crew Descent Enrolled FORGOTTEN
Gathering Guard Held Holders Holding Job Joined Kept Letter LocalPlan MaskedParty MemoryStore
News Occasion OpenJoin Parking Passing Pinned Pledge Pledging Post PrivateJoin Register Roll
Screen Seat SecureSum Share Shelf Sites SoundOnly Supply Trusted Unevenness Watched Wire
Workshop calling cards compare_words crew dated deal_values deciding_classes decisions division
drawings find_fault following forecast gallery introduce joining keeper liar liars nursery pace
packing page_words parking pictures pledging remarks remembering roll screening seal seal_share
sealed sheets soundness spell step_mass suits tally unevenness unseal wording workshop
"""


def identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def test_no_name_of_the_source_is_a_retired_metaphor():
    retired, found = set(RETIRED.split()), []
    for path in sorted(PACKAGE.rglob("*.py")):
        names = {path.stem, *identifiers(ast.parse(path.read_text("utf-8")))}
        used = {name for name in names if name.removeprefix("_") in retired}
        found += [f"{path.relative_to(PACKAGE)}: {name}" for name in sorted(used)]
    assert found == []
