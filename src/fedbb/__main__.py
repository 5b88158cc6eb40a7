"""`python -m fedbb`: the command line, for those whose PATH does not have it."""

from fedbb.cli.main import main

if __name__ == "__main__":
    main()
