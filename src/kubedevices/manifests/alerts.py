# ruff: noqa: E501 - the page has the same lines
"""The alerts for Prometheus. docs/observe.md has the same lines.

The names of metrics come from `kubedevices.pages.metrics`.
"""

ALERTS = """\
groups:
- name: kubedevices
  rules:
  - alert: PluginDown
    expr: |
      max by (node, resource) (max_over_time(kubedevices_plugin_streams[1d]))
        unless max by (node, resource) (kubedevices_plugin_streams)
    for: 5m
    annotations: {summary: "{{ $labels.node }}: the plugin of {{ $labels.resource }} is gone"}
  - alert: VendorPluginDown
    expr: max by (node, resource) (kubedevices_proxied_plugin_connected) == 0
    for: 5m
    annotations:
      summary: "{{ $labels.node }}: the plugin of {{ $labels.resource }} is not connected to the proxy"
  - alert: DevicesNotOffered
    expr: max by (node, resource) (kubedevices_plugin_streams) == 0
    for: 5m
    annotations:
      summary: "{{ $labels.node }}: no kubelet watches {{ $labels.resource }}, see /readyz and the log"
  - alert: DeviceUnhealthy
    expr: max by (node, resource) (kubedevices_plugin_devices{health="Unhealthy"}) > 0
    for: 10m
    annotations: {summary: "{{ $labels.node }}: {{ $value }} of {{ $labels.resource }} are unhealthy"}
  - alert: DeviceMissing
    expr: |
      max by (node, resource) (sum without (health) (kubedevices_plugin_devices))
        < max by (node, resource) (sum without (health) (kubedevices_plugin_devices offset 1d))
    for: 10m
    annotations:
      summary: "{{ $labels.node }}: fewer devices of {{ $labels.resource }} than yesterday"
  - alert: AllocationsFail
    expr: |
      increase(kubedevices_plugin_allocations_total{result="failure"}[15m]) > 0
        or increase(kubedevices_plugin_pre_start_errors_total[15m]) > 0
    annotations: {summary: "{{ $labels.node }}: pods with {{ $labels.resource }} do not start"}
  - alert: RegistrationsFlap
    expr: increase(kubedevices_plugin_registrations_total{result="success"}[1h]) > 10
    annotations: {summary: "{{ $labels.node }}: do two plugins serve {{ $labels.resource }}?"}
  - alert: ConfigurationBroken
    expr: kubedevices_plugin_config_last_reload_successful == 0
    for: 5m
    annotations: {summary: "{{ $labels.node }}: the configuration cannot be used; the log has the line"}
  - alert: NodeStateDamaged
    expr: increase(kubedevices_node_damaged_state_total[1h]) > 0
    annotations: {summary: "a file of the node's state was damaged"}
"""
"""The text of a rule file."""
