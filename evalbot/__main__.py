"""``python -m evalbot``: the same as the ``evalbot`` command."""

from evalbot.cli import main

if __name__ == "__main__":
    main()
