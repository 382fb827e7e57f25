{{/* The name of all objects: the name of the release, with "kubedevices" in it. */}}
{{- define "kubedevices.name" -}}
{{- if .Values.nameOverride -}}
{{- .Values.nameOverride -}}
{{- else if contains "kubedevices" .Release.Name -}}
{{- .Release.Name | trunc 57 | trimSuffix "-" -}}
{{- else -}}
{{- printf "kubedevices-%s" .Release.Name | trunc 57 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Checks of values that the schema cannot express. */}}
{{- define "kubedevices.check" -}}
{{- $v := .v }}
{{- $name := .name }}
{{- range concat (list "") .others }}
{{- $whole := ternary (printf "%s-%s" $name .) $name (ne . "") }}
{{- if or (gt (len $whole) 57) (not (regexMatch "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" $whole)) }}
{{- fail (printf "name %q: use a-z, 0-9 and '-', at most 57 of them: set nameOverride" $whole) }}
{{- end }}
{{- end }}
{{- if and $v.controlSocketDir (ne $v.plugin "simulate") }}
{{- fail "controlSocketDir works with simulate only" }}
{{- end }}
{{- if and $v.metrics.enabled (eq $v.plugin "proxy") }}
{{- fail "metrics.enabled works with simulate, expose and run only" }}
{{- end }}
{{- if and .others (or (eq $v.plugin "run") (include "kubedevices.hasDra" .)) }}
{{- fail "nodeConfigs work with simulate, expose and proxy only, and not with DRA" }}
{{- end }}
{{- if and $v.metrics.dashboard (has "dashboard" .others) }}
{{- fail "nodeConfigs: dashboard is the name of the dashboard of metrics.dashboard" }}
{{- end }}
{{- if ne 1 (int ($v.livenessProbe.successThreshold | default 1)) }}
{{- fail "livenessProbe: successThreshold must be 1" }}
{{- end }}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 $v.updateStrategy | toString }}
{{- if and (include "kubedevices.isAlone" .) (not (has $surge (list "0" "0%" ""))) }}
{{- fail "updateStrategy: maxSurge must be 0, as two such pods disturb each other" }}
{{- end }}
{{- include "kubedevices.checkDirectories" . }}
{{- if and (eq $v.plugin "run") (not $v.arguments) }}
{{- fail "plugin run needs arguments, such as [widgets:Widgets, --domain, example.com]" }}
{{- end }}
{{- if include "kubedevices.hasDra" . }}
{{- if not $v.domain }}{{ fail "mode dra needs domain: the name of the driver" }}{{ end }}
{{- if and (eq $v.mode "split") (not $v.draDevices) }}
{{- fail "mode split needs draDevices: which devices are in DRA" }}
{{- end }}
{{- if and $v.modeFile $v.modeLabel }}
{{- fail "modeFile and modeLabel exclude each other: the mode of a node has one source" }}
{{- end }}
{{- if and (eq $v.plugin "proxy") (include "kubedevices.hasPlugin" .) }}
{{- fail "a proxy has the modes device-plugin and dra, and its mode does not change" }}
{{- end }}
{{- end }}
{{- range $labels := list $v.labels $v.podLabels $v.metrics.labels }}
{{- range $key, $_ := $labels }}
{{- if or (hasPrefix "app.kubernetes.io/" $key) (hasPrefix "kubedevices-namespace" $key) }}{{ fail (printf "kubedevices sets the label %s" $key) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses to mount directories with secrets or sockets of the host or the cluster. */}}
{{- define "kubedevices.checkDirectories" -}}
{{- $v := .v }}
{{- $secret := .root.Files.Get "files/secret-directories.txt" | trim }}
{{- $paths := concat $v.hostDirs $v.devDirs }}
{{- range $v.nodeConfigs }}{{ $paths = concat $paths (.hostDirs | default list) }}{{ end }}
{{- range $v.mounts }}
{{- $paths = append $paths .path }}
{{- if eq (.inside | default .path) "/dev" }}
{{- fail "mounts: a mount at /dev would hide the container's own /dev: set inside, for example to /host/dev" }}
{{- end }}
{{- end }}
{{- with $v.controlSocketDir }}{{ $paths = append $paths . }}{{ end }}
{{- if and $v.modeFile (ne $v.modeFile "configmap") }}{{ $paths = append $paths (dir $v.modeFile) }}{{ end }}
{{- range $paths }}
{{- if or (not (hasPrefix "/" .)) (ne . (clean .)) }}
{{- fail (printf "%q is not an absolute path of a directory" .) }}
{{- end }}
{{- if regexMatch $secret . }}
{{- fail (printf "%q has secrets or sockets of the host: use a separate directory, such as /run/widgets" .) }}
{{- end }}
{{- end }}
{{- range $v.devDirs }}
{{- if not (hasPrefix "/dev/" (printf "%s/" .)) }}
{{- fail (printf "devDirs: %q is not a directory below /dev" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether devices may be in DRA, now or after a change of the mode; not empty means yes. */}}
{{- define "kubedevices.hasDra" -}}
{{- if or (ne .v.mode "device-plugin") .v.modeFile .v.modeLabel }}yes{{ end }}
{{- end }}

{{/* Whether devices may be in the device plugin API, now or after a change of the mode. */}}
{{- define "kubedevices.hasPlugin" -}}
{{- if or (ne .v.mode "dra") .v.modeFile .v.modeLabel }}yes{{ end }}
{{- end }}

{{/* Whether the pods ask the kubelet which pod holds which device. A proxy always asks. */}}
{{- define "kubedevices.asksPodResources" -}}
{{- if or .v.metrics.enabled (eq .v.plugin "proxy") }}yes{{ end }}
{{- end }}

{{/* Whether a node must not have two pods, not even during an update. */}}
{{- define "kubedevices.isAlone" -}}
{{- if or (eq .v.plugin "proxy") (and (include "kubedevices.hasDra" .) (include "kubedevices.hasPlugin" .)) }}yes{{ end }}
{{- end }}

{{- define "kubedevices.image" -}}
{{- $tag := .v.image.tag | default (ternary "" .root.Chart.AppVersion (ne .v.image.digest "")) -}}
{{- .v.image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .v.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The labels that select only the pods of this plugin. */}}
{{- define "kubedevices.selector" -}}
app.kubernetes.io/name: kubedevices
app.kubernetes.io/instance: {{ .name }}
{{- end }}

{{- define "kubedevices.labels" -}}
{{- with .v.labels }}{{ toYaml . }}{{ "\n" }}{{ end -}}
{{ include "kubedevices.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .partOf }}
app.kubernetes.io/part-of: {{ . }}
{{- end }}
{{- end }}

{{- define "kubedevices.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kubedevices.labels" . | nindent 2 }}
{{- with .v.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The metadata with another name and more labels; the argument is a list of context, name, labels. */}}
{{- define "kubedevices.metadataWith" -}}
{{- $about := include "kubedevices.metadata" (index . 0) | fromYaml }}
{{- $_ := set $about "name" (index . 1) }}
{{- $_ := set $about "labels" (mergeOverwrite $about.labels (index . 2)) }}
{{- toYaml $about }}
{{- end }}

{{/* The metadata of an object without a namespace. */}}
{{- define "kubedevices.clusterMetadata" -}}
name: {{ .root.Release.Namespace }}.{{ .name }}
labels:
  {{- include "kubedevices.labels" . | nindent 2 }}
  kubedevices-namespace: {{ .root.Release.Namespace }}
{{- with .v.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The text of the configuration; empty if the plugin has no configuration. */}}
{{- define "kubedevices.configText" -}}
{{- if .v.config }}{{ .v.config }}{{ else if eq .v.plugin "expose" }}{{ .root.Files.Get "files/example.yaml" }}{{ end }}
{{- end }}

{{/* The data of the ConfigMap, as YAML; empty if no ConfigMap is needed. */}}
{{- define "kubedevices.mapData" -}}
{{- $data := dict }}
{{- with include "kubedevices.configText" . }}{{ $_ := set $data "config.yaml" . }}{{ end }}
{{- if eq .v.modeFile "configmap" }}{{ $_ := set $data "mode" .v.mode }}{{ end }}
{{- with $data }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The name of the ConfigMap. With versionedConfig it ends with a hash of the data. */}}
{{- define "kubedevices.mapName" -}}
{{- $text := "" }}
{{- with include "kubedevices.configText" . }}{{ $text = printf "config.yaml\x00%s\x00" . }}{{ end }}
{{- if eq .v.modeFile "configmap" }}{{ $text = printf "%smode\x00%s\x00" $text .v.mode }}{{ end }}
{{- .name }}{{ if .v.versionedConfig }}-{{ sha256sum $text | trunc 8 }}{{ end }}
{{- end }}
