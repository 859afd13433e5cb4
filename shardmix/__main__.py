"""`python -m shardmix` is the command `shardmix`."""

from .tools.main import main

if __name__ == "__main__":
    main()
