"""``python -m oncelog``."""

from oncelog.cli.main import run

if __name__ == "__main__":
    run()
