"""The metrics of a DRA driver. Each series names its driver: a proxy has several in a process."""

from kubedevices.pages.metrics import DEFAULT_BUCKETS, Metric

_DRIVER = "kubedevices_driver_"
DRIVER_DEVICES = Metric(
    f"{_DRIVER}devices",
    "gauge",
    "Devices of a type, by state: published, withheld for the device plugin API, or refused.",
    ("driver", "device_type", "state"),
)
DRIVER_SLICES = Metric(
    f"{_DRIVER}slices", "gauge", "ResourceSlices that the driver wants.", ("driver",)
)
DRIVER_PUBLISHED = Metric(
    f"{_DRIVER}published",
    "gauge",
    "1 while the API server has the slices that the driver wants.",
    ("driver",),
)
DRIVER_REGISTERED = Metric(
    f"{_DRIVER}registered",
    "gauge",
    "1 while this instance of the driver is registered.",
    ("driver",),
)
PUBLISH_ERRORS = Metric(
    f"{_DRIVER}publish_errors_total",
    "counter",
    "Calls about slices that the API server refused or did not answer.",
    ("driver",),
)
API_REQUESTS = Metric(
    f"{_DRIVER}api_requests_total",
    "counter",
    "Calls to the API server, by verb and resource.",
    ("driver", "verb", "resource"),
)
CLAIMS = Metric(
    f"{_DRIVER}claims",
    "gauge",
    "Claims, by state: prepared, or refused at the kubelet's last call.",
    ("driver", "state"),
)
CLAIM_ERRORS = Metric(
    f"{_DRIVER}claim_errors_total",
    "counter",
    "Claims that could not be prepared or unprepared.",
    ("driver", "call"),
)
CLAIM_SECONDS = Metric(
    f"{_DRIVER}claim_seconds",
    "histogram",
    "Seconds that the kubelet's calls took, failed calls included.",
    ("driver", "call"),
    DEFAULT_BUCKETS,
)
DEVICE_CLAIMED = Metric(
    f"{_DRIVER}device_claimed",
    "gauge",
    "1 for each device of a prepared claim.",
    ("driver", "device", "claim_namespace", "claim_name"),
)
