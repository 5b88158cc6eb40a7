"""Tables and figures of a sweep, from the run folders of its cells."""
