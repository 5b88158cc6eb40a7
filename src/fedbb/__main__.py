"""The command line: the command `fedbb`, and `python -m fedbb` where PATH does not have it."""

from fedbb._util.interrupt import end_at_once, on_interrupt


def main() -> None:
    """Load the command line and run it; Ctrl-C ends it from the first moment on."""
    with on_interrupt(end_at_once):
        from fedbb.cli.main import main as run
    run()


if __name__ == "__main__":
    main()
