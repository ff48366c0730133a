"""What goes wrong with a model directory."""


class ModelError(Exception):
    """The directory holds no model that can be converted; the message says what was found and what was expected."""
