"""Help with a name that is not known."""

from hypothesis import given
from hypothesis import strategies as st

from fedbb._util.names import nearest

words = st.text("abcdefg", min_size=1, max_size=6)


def test_the_likeliest_name_is_offered_before_all_that_are_known():
    assert nearest("gama", ["beta", "gamma"]) == "; did you mean gamma? Known: beta, gamma"


def test_a_name_that_begins_as_given_is_likelier_than_one_with_the_same_letters():
    told = nearest("conc", ["column", "concentration"])
    assert told.startswith("; did you mean concentration?")


def test_without_a_likely_name_all_are_listed():
    assert nearest("zzz", ["beta", "tau"]) == "; known: beta, tau"


def test_where_nothing_is_known_it_says_so():
    assert nearest("beta", []) == "; it takes none"


@given(words, st.lists(words, min_size=1, unique=True))
def test_every_known_name_is_listed_in_its_order(name, known):
    assert nearest(name, iter(known)).endswith("nown: " + ", ".join(known))
