"""How single texts have to be spelled: names, keys, origins, digests, what a business type is matched by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.admin_settings import AdminSettings
from gateway.alert_settings import AlertReceiverSettings
from gateway.configuration.patterns import pattern_fault
from gateway.configuration.reading import Faults, Reading
from gateway.configuration.urls import host_fault, url_fault
from gateway.settings import (
    BackendSettings,
    BusinessTypeSettings,
    MatchSettings,
    PoolSettings,
    ServerSettings,
    TenantSettings,
)

MAX_KEYWORD_LENGTH = 100
MAX_MODEL_LENGTH = 256

_NAME = re.compile(r"[!-~]{1,128}")
_NOT_IN_NAMES = frozenset(";,=\"\\'")
_API_KEY = re.compile(r"[!-~]*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._~\[\]:-]+")
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
_PATH = re.compile(r"/[!-~]*")


def name_fault(name: str) -> str | None:
    if _NAME.fullmatch(name) and _NOT_IN_NAMES.isdisjoint(name):
        return None
    # Names are label values of metrics and fields of the x-headrace-route header.
    return (
        "is not a name; allowed: 1 to 128 characters of printable ASCII without spaces, quotes and ; , = \\"
    )


def spelling_faults(reading: Reading) -> Faults:
    for name, value in reading.values.items():
        fault_of = _SPELLING.get((reading.record, name))
        if fault_of is None:
            continue
        if isinstance(value, str):
            items = [(reading.at(name), value)]
        else:
            items = [(f"{reading.at(name)}[{index}]", item) for index, item in enumerate(value)]
        for key, text in items:
            if message := fault_of(text):
                yield key, message


def _optional_name_fault(name: str) -> str | None:
    return name_fault(name) if name else None


def _own_name_fault(taken: str) -> Callable[[str], str | None]:
    def fault_of(name: str) -> str | None:
        if name == taken:
            return f"is the name of what needs no configuration; allowed: any other name than {taken}"
        return name_fault(name)

    return fault_of


def _api_key_fault(value: str) -> str | None:
    if _API_KEY.fullmatch(value):
        return None
    return "cannot be sent in a header; allowed: printable ASCII without spaces"


def _origin_fault(origin: str) -> str | None:
    if origin == "*" or _ORIGIN.fullmatch(origin):
        return None
    return 'is not an origin; allowed: SCHEME://HOST[:PORT] in lower case without a path, or "*"'


def _sha256_fault(digest: str) -> str | None:
    if _SHA256.fullmatch(digest):
        return None
    return "is not a SHA-256; allowed: 64 hexadecimal digits, such as `printf %s TEXT | sha256sum` prints"


def _keyword_fault(keyword: str) -> str | None:
    if 1 <= len(keyword) <= MAX_KEYWORD_LENGTH and not keyword.isspace():
        return None
    return f"is not a keyword; allowed: 1 to {MAX_KEYWORD_LENGTH} characters that are not all blank"


def _prompt_fault(text: str) -> str | None:
    return None if text.strip() else "is blank; allowed: the text of a system prompt"


def _model_fault(model: str) -> str | None:
    if 1 <= len(model) <= MAX_MODEL_LENGTH:
        return None
    return f"is not the name of a model; allowed: 1 to {MAX_MODEL_LENGTH} characters"


def _path_fault(path: str) -> str | None:
    if _PATH.fullmatch(path) and "?" not in path:
        return None
    return "is not the path of a request; allowed: such as /v1/embeddings, without a query"


_SPELLING: Mapping[tuple[type[Any], str], Callable[[str], str | None]] = {
    (ServerSettings, "host"): host_fault,
    (AdminSettings, "host"): host_fault,
    (AdminSettings, "key_sha256"): _sha256_fault,
    (ServerSettings, "cors_origins"): _origin_fault,
    (PoolSettings, "name"): name_fault,
    (BackendSettings, "url"): url_fault,
    (BackendSettings, "name"): _optional_name_fault,
    (BackendSettings, "api_key"): _api_key_fault,
    (AlertReceiverSettings, "bearer_token"): _api_key_fault,
    (BusinessTypeSettings, "name"): _own_name_fault("default"),
    (MatchSettings, "keywords"): _keyword_fault,
    (MatchSettings, "regex"): pattern_fault,
    (MatchSettings, "system_prompts"): _prompt_fault,
    (MatchSettings, "system_prompt_sha256"): _sha256_fault,
    (MatchSettings, "models"): _model_fault,
    (MatchSettings, "paths"): _path_fault,
    (TenantSettings, "name"): _own_name_fault("anonymous"),
    (TenantSettings, "key_sha256"): _sha256_fault,
}
