{{- define "kubedevices.objects" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "kubedevices.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- if and .v.resourceQuota .v.priorityClassName (not .partOf) (ne .root.Release.Namespace "kube-system") }}
---
apiVersion: v1
kind: ResourceQuota
metadata:
  {{- include "kubedevices.metadata" . | nindent 2 }}
spec:
  hard: {pods: 1G}
  scopeSelector:
    matchExpressions:
    - {scopeName: PriorityClass, operator: In, values: [{{ toJson .v.priorityClassName }}]}
{{- end }}
{{- with include "kubedevices.mapData" . }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "kubedevices.metadataWith" (list $ (include "kubedevices.mapName" $) dict) | nindent 2 }}
data:
  {{- . | nindent 2 }}
{{- if $.v.versionedConfig }}
immutable: true
{{- end }}
{{- end }}
{{- if .v.openshift }}
{{- include "kubedevices.openshift" . }}
{{- end }}
{{- if include "kubedevices.hasDra" . }}
{{- include "kubedevices.dra" . }}
{{- end }}
{{- include "kubedevices.monitoring" . }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  {{- include "kubedevices.metadata" . | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "kubedevices.selector" . | nindent 6 }}
  updateStrategy:
    {{- with .v.updateStrategy }}
    {{- toJson . | nindent 4 }}
    {{- else }}
    type: RollingUpdate
    {{- if include "kubedevices.isAlone" . }}
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
    {{- else }}
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
    {{- end }}
    {{- end }}
  template:
    metadata:
      labels:
        {{- with .v.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- include "kubedevices.selector" . | nindent 8 }}
      {{- with include "kubedevices.podAnnotations" . }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "kubedevices.podSpec" . | nindent 6 }}
{{- end }}

{{- define "kubedevices.podAnnotations" -}}
{{- $found := deepCopy .v.podAnnotations }}
{{- if and .v.metrics.enabled .v.metrics.annotations }}
{{- $_ := set $found "prometheus.io/scrape" "true" }}
{{- $_ := set $found "prometheus.io/port" "9400" }}
{{- $_ := set $found "prometheus.io/path" "/metrics" }}
{{- end }}
{{- if and (eq .v.plugin "simulate") .v.config (not .v.versionedConfig) }}
{{- $_ := set $found "checksum/config" (sha256sum .v.config | trunc 16) }}
{{- end }}
{{- with $found }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "kubedevices.openshift" }}
---
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  {{- include "kubedevices.clusterMetadata" . | nindent 2 }}
allowHostDirVolumePlugin: true
allowHostIPC: false
allowHostNetwork: false
allowHostPID: false
allowHostPorts: false
allowPrivilegedContainer: {{ .v.privileged }}
allowPrivilegeEscalation: {{ or .v.privileged (has "SYS_ADMIN" .v.capabilities) }}
readOnlyRootFilesystem: true
priority: null
allowedCapabilities: {{ .v.capabilities | default nil | toJson }}
defaultAddCapabilities: null
requiredDropCapabilities: [ALL]
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
seccompProfiles: [runtime/default]
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
users: ["system:serviceaccount:{{ .root.Release.Namespace }}:{{ .name }}"]
volumes: [configMap, hostPath{{ if include "kubedevices.hasDra" . }}, projected{{ end }}]
{{- end }}

{{- define "kubedevices.monitoring" }}
{{- if .v.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "kubedevices.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "kubedevices.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- /* A rule without `from` would allow all pods, so without `from` there is no rule. */}}
  {{- with .v.networkPolicy.from }}
  ingress:
  - from: {{ toJson . }}
    ports: [{port: pages}]
  {{- else }}
  ingress: []
  {{- end }}
{{- end }}
{{- if .v.metrics.podMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "kubedevices.metadataWith" (list . .name .v.metrics.labels) | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "kubedevices.selector" . | nindent 6 }}
  podMetricsEndpoints:
  - {port: pages, path: /metrics, honorLabels: true}
{{- end }}
{{- if and .v.metrics.prometheusRule (not .partOf) }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "kubedevices.metadataWith" (list . .name .v.metrics.labels) | nindent 2 }}
spec:
  {{- .root.Files.Get "files/alerts.yaml" | nindent 2 }}
{{- end }}
{{- if and .v.metrics.dashboard (not .partOf) }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- $labels := mergeOverwrite (dict "grafana_dashboard" "1") .v.metrics.labels }}
  {{- include "kubedevices.metadataWith" (list . (printf "%s-dashboard" .name) $labels) | nindent 2 }}
data:
  kubedevices.json: {{ .root.Files.Get "files/dashboard.json" | toJson }}
{{- end }}
{{- end }}
