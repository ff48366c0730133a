"""The parts of tools/convert.py."""
