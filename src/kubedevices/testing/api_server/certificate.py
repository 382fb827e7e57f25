"""The certificate of the stand-in for an API server, and its key, which is public.

A driver in a pod speaks TLS with the API server. A certificate that is made for each run would need
a library or the program openssl. So these are constants, as in the package httptest of Go: they are
for the loopback address only, from 2020 to 2100, and the key of the CA was thrown away. Nobody must
trust the CA except a process that a check starts.
"""

import os
import ssl

CA = """\
-----BEGIN CERTIFICATE-----
MIIBbDCCARGgAwIBAgIBATAKBggqhkjOPQQDAjAcMRowGAYDVQQDDBFrdWJlZGV2
aWNlcyBjaGVjazAgFw0yMDAxMDEwMDAwMDBaGA8yMTAwMDEwMTAwMDAwMFowHDEa
MBgGA1UEAwwRa3ViZWRldmljZXMgY2hlY2swWTATBgcqhkjOPQIBBggqhkjOPQMB
BwNCAAS2vG/A9dsMDMoebzqbsN3s95QR1IKB6WO0cQFLVYTeZaV4SvJH32whzMJb
S01o//0vY5hxIPtIb6nCA3X8EkKJo0IwQDAPBgNVHRMBAf8EBTADAQH/MA4GA1Ud
DwEB/wQEAwIBBjAdBgNVHQ4EFgQUfrNoTqf7eAh5IFQeSfDs/9b+3qowCgYIKoZI
zj0EAwIDSQAwRgIhALLPsSCt7ZyBBdkaZzgn7mj0egpgnSdf3lT7SWSTaVnBAiEA
9EFnyxZYd7zliL3+Re+Bo+7MX2BfbyLLm7ym8RIAWGA=
-----END CERTIFICATE-----
"""
"""The file ca.crt of a service account."""

_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIICKjCCAdCgAwIBAgIBAjAKBggqhkjOPQQDAjAcMRowGAYDVQQDDBFrdWJlZGV2
aWNlcyBjaGVjazAgFw0yMDAxMDEwMDAwMDBaGA8yMTAwMDEwMTAwMDAwMFowFTET
MBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCbt
zfZ7f9F1LAAQbXFhVTE1M0mZxfbCLCb3pJsnIp5qFvCtVWJM0riikgyDa2yw4w3N
ZIHn2JJ+nmKWJqKOGh2jggEGMIIBAjAMBgNVHRMBAf8EAjAAMA4GA1UdDwEB/wQE
AwIHgDATBgNVHSUEDDAKBggrBgEFBQcDATCBjAYDVR0RBIGEMIGBhwR/AAABhxAA
AAAAAAAAAAAAAAAAAAABgglsb2NhbGhvc3SCCmt1YmVybmV0ZXOCEmt1YmVybmV0
ZXMuZGVmYXVsdIIWa3ViZXJuZXRlcy5kZWZhdWx0LnN2Y4Ika3ViZXJuZXRlcy5k
ZWZhdWx0LnN2Yy5jbHVzdGVyLmxvY2FsMB0GA1UdDgQWBBT+vENfVPqxRI7dY/Ku
MvKS5C5wvjAfBgNVHSMEGDAWgBR+s2hOp/t4CHkgVB5J8Oz/1v7eqjAKBggqhkjO
PQQDAgNIADBFAiB2gXwVgI7FGJ3/xVQPh0tqcbvdE9CUKJO9htS8LwC4FQIhAINx
+SV818U4QHyT0pcy0HnvSdlR2tBDONt16aESZ5QL
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgsKAF/LZNCoSeKU1P
WI1kj/4PjAxk+WY+JPraOlK4DFqhRANCAAQm7c32e3/RdSwAEG1xYVUxNTNJmcX2
wiwm96SbJyKeahbwrVViTNK4opIMg2tssOMNzWSB59iSfp5iliaijhod
-----END PRIVATE KEY-----
"""


def server_context() -> ssl.SSLContext:
    """Return the TLS settings of the server: HTTP/1.1 only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module reads a certificate only from a path, so use a file in memory.
    memory = os.memfd_create("server certificate")
    try:
        os.write(memory, (_CERTIFICATE + _KEY).encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context
