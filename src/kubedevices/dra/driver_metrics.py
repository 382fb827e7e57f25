"""The metrics of a DRA driver. Each series names its driver: a proxy has several in a process."""

from kubedevices.pages.metrics import counter, gauge, histogram

_DRIVER = "kubedevices_driver_"
DRIVER_DEVICES = gauge(
    f"{_DRIVER}devices",
    "Devices of a type, by state: published, withheld for the device plugin API, or refused.",
    "driver device_type state",
)
DRIVER_SLICES = gauge(f"{_DRIVER}slices", "ResourceSlices that the driver wants.", "driver")
DRIVER_PUBLISHED = gauge(
    f"{_DRIVER}published", "1 while the API server has the slices that the driver wants.", "driver"
)
DRIVER_REGISTERED = gauge(
    f"{_DRIVER}registered", "1 while this instance of the driver is registered.", "driver"
)
PUBLISH_ERRORS = counter(
    f"{_DRIVER}publish_errors_total",
    "Calls about slices that the API server refused or did not answer.",
    "driver",
)
API_REQUESTS = counter(
    f"{_DRIVER}api_requests_total",
    "Calls to the API server, by verb and resource.",
    "driver verb resource",
)
CLAIMS = gauge(
    f"{_DRIVER}claims",
    "Claims, by state: prepared, or refused at the kubelet's last call.",
    "driver state",
)
CLAIM_ERRORS = counter(
    f"{_DRIVER}claim_errors_total",
    "Claims that could not be prepared or unprepared.",
    "driver call",
)
CLAIM_SECONDS = histogram(
    f"{_DRIVER}claim_seconds",
    "Seconds that the kubelet's calls took, failed calls included.",
    "driver call",
)
DEVICE_CLAIMED = gauge(
    f"{_DRIVER}device_claimed",
    "1 for each device of a prepared claim.",
    "driver device claim_namespace claim_name",
)
