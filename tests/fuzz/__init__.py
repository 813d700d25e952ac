"""What hostile bytes may not do: properties (`targets`), an independent strict reader of HTTP/1.1 (`strict`), and two drivers.

`test_fuzz` runs hypothesis over the properties in the suite; `python -m tests.fuzz --seconds N` mutates bytes for as long as it is given.
"""
