"""Errors of the engine, and what the environment may override.

    EngineError
    ├── ConfigError      a config this engine does not support, or cannot read
    ├── WeightsError     tensors missing, unexpected, mis-shaped, all zero or not finite
    ├── ModelFileError   a model file that is absent, truncated, or not the one pinned
    ├── TokenizerError   a tokenizer that is absent or disagrees with the model
    ├── PromptError      a prompt that cannot be decoded: empty, too long, ids out of range
    ├── CapacityError    more positions than the KV cache was built for
    ├── NumericsError    logits that are not numbers
    └── OverrideError    an engine environment variable with a value it cannot take

Each message is a sentence for a person: what, expected, actual, what to do.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error whose message may be shown to a user as it stands."""


class ConfigError(EngineError):
    pass


class WeightsError(EngineError):
    pass


class ModelFileError(EngineError):
    pass


class TokenizerError(EngineError):
    pass


class PromptError(EngineError):
    pass


class CapacityError(EngineError):
    pass


class NumericsError(EngineError):
    pass


class OverrideError(EngineError):
    pass
