"""Every metric of a DRA driver."""

from kubedevices.metrics import DEFAULT_BUCKETS, Metric

_DRIVER = "kubedevices_driver_"
DRIVER_DEVICES = Metric(
    f"{_DRIVER}devices",
    "gauge",
    "Devices of a type: published, withheld for the other API, or refused by its rules.",
    ("device_type", "state"),
)
DRIVER_SLICES = Metric(f"{_DRIVER}slices", "gauge", "ResourceSlices that are wanted.")
DRIVER_PUBLISHED = Metric(
    f"{_DRIVER}published", "gauge", "1 while the API server has the slices that are wanted."
)
DRIVER_REGISTERED = Metric(
    f"{_DRIVER}registered", "gauge", "1 while a kubelet knows the driver from us."
)
PUBLISH_ERRORS = Metric(
    f"{_DRIVER}publish_errors_total",
    "counter",
    "Calls for slices that the API server refused or did not answer.",
)
API_REQUESTS = Metric(
    f"{_DRIVER}api_requests_total",
    "counter",
    "Calls to the API server, by verb and resource.",
    ("verb", "resource"),
)
CLAIMS = Metric(
    f"{_DRIVER}claims",
    "gauge",
    "Claims: prepared, or wanted by a kubelet and refused when it asked last.",
    ("state",),
)
CLAIM_ERRORS = Metric(
    f"{_DRIVER}claim_errors_total",
    "counter",
    "Claims that could not be prepared, or given back.",
    ("call",),
)
CLAIM_SECONDS = Metric(
    f"{_DRIVER}claim_seconds",
    "histogram",
    "How long calls of the kubelet took, failures included.",
    ("call",),
    DEFAULT_BUCKETS,
)
DEVICE_CLAIMED = Metric(
    f"{_DRIVER}device_claimed",
    "gauge",
    "1 for each device that a prepared claim has.",
    ("device", "claim_namespace", "claim_name"),
)
