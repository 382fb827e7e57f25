{{/* Values of the admin are written as JSON, because toYaml would write 1000000 as 1e+06. */}}
{{- define "kubedevices.podSpec" -}}
{{- $v := .v }}
{{- $volumes := include "kubedevices.volumes" . | fromJsonArray }}
automountServiceAccountToken: {{ ternary true false (ne (include "kubedevices.hasDra" .) "") }}
terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds | default (ternary 30 5 (ne (include "kubedevices.hasDra" .) "")) }}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: {type: RuntimeDefault}
  {{- if or $v.selinux $v.openshift }}
  seLinuxOptions: {type: container_device_plugin_t}
  {{- end }}
serviceAccountName: {{ .name }}
{{- with $v.priorityClassName }}
priorityClassName: {{ toJson . }}
{{- end }}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ toJson . }}
{{- end }}
{{- end }}
nodeSelector:
  {{- $nodes := merge (deepCopy $v.nodeSelector) (dict "kubernetes.io/os" "linux") }}
  {{- with .nodeConfig }}{{ $_ := set $nodes $v.nodeConfigLabel . }}{{ end }}
  {{- toYaml $nodes | nindent 2 }}
{{- with include "kubedevices.affinity" . }}
affinity: {{ . }}
{{- end }}
{{- $tolerations := list }}
{{- if $v.tolerateControlPlane }}
{{- $tolerations = append $tolerations (dict "key" "node-role.kubernetes.io/control-plane" "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with concat $tolerations $v.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
containers:
- name: kubedevices
  image: {{ include "kubedevices.image" . | toJson }}
  {{- with $v.imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args:
    {{- include "kubedevices.arguments" . | fromJsonArray | toYaml | nindent 4 }}
  env:
  - name: NODE_NAME
    valueFrom:
      fieldRef: {fieldPath: spec.nodeName}
  {{- range $name, $value := omit $v.env "NODE_NAME" }}
  - {name: {{ toJson $name }}, value: {{ toJson $value }}}
  {{- end }}
  ports:
  - {name: pages, containerPort: 9400}
  {{- $readiness := dict "httpGet" (dict "path" "/readyz" "port" "pages") "periodSeconds" 1 "timeoutSeconds" 3 }}
  readinessProbe:
    {{- toYaml (mergeOverwrite $readiness (deepCopy $v.readinessProbe)) | nindent 4 }}
  {{- $liveness := dict "httpGet" (dict "path" "/healthz" "port" "pages") "periodSeconds" 4 "timeoutSeconds" 3 "failureThreshold" 3 }}
  livenessProbe:
    {{- toYaml (mergeOverwrite $liveness (deepCopy $v.livenessProbe)) | nindent 4 }}
  securityContext:
    privileged: {{ $v.privileged }}
    allowPrivilegeEscalation: {{ or $v.privileged (has "SYS_ADMIN" $v.capabilities) }}
    readOnlyRootFilesystem: true
    {{- with $v.capabilities }}
    capabilities: {drop: [ALL], add: {{ toJson . }}}
    {{- else }}
    capabilities: {drop: [ALL]}
    {{- end }}
  resources:
    {{- with $v.resources }}
    {{- toJson . | nindent 4 }}
    {{- else }}
    {{- $wanted := add 64 (div (mul (int64 $v.devices) 4096) 1048576) }}
    {{- $limit := max 128 (mul (div (add $wanted 63) 64) 64) }}
    requests: {cpu: 10m, memory: {{ add 40 (div (sub $limit 128) 2) }}Mi}
    limits: {memory: {{ $limit }}Mi}
    {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
  {{- range $volumes }}
  - name: {{ .name }}
    mountPath: {{ toJson .inside }}
    {{- if .readOnly }}
    readOnly: true
    {{- end }}
  {{- end }}
  {{- if include "kubedevices.mapData" . }}
  - {name: config, mountPath: /etc/kubedevices, readOnly: true}
  {{- end }}
volumes:
{{- range $volumes }}
- name: {{ .name }}
  hostPath: {path: {{ toJson .path }}, type: {{ .type }}}
{{- end }}
{{- if include "kubedevices.mapData" . }}
- name: config
  configMap: {name: {{ include "kubedevices.mapName" . }}}
{{- end }}
{{- end }}

{{/* The affinity of the admin; each term of the node affinity also gets our conditions. */}}
{{- define "kubedevices.affinity" -}}
{{- $v := .v }}
{{- $conditions := list }}
{{- with $v.arch }}
{{- $conditions = append $conditions (dict "key" "kubernetes.io/arch" "operator" "In" "values" .) }}
{{- end }}
{{- with .others }}
{{- $conditions = append $conditions (dict "key" $v.nodeConfigLabel "operator" "NotIn" "values" .) }}
{{- end }}
{{- $affinity := deepCopy $v.affinity }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $ofNodes := get $affinity "nodeAffinity" | default dict }}
{{- $given := get (get $ofNodes $required | default dict) "nodeSelectorTerms" | default list }}
{{- $full := list }}
{{- range $given }}{{ if or .matchExpressions .matchFields }}{{ $full = append $full . }}{{ end }}{{ end }}
{{- /* In Kubernetes an empty term matches no node, so an empty term must not get our conditions. */}}
{{- if and $conditions (or $full (not $given)) }}
{{- $terms := list }}
{{- range $full | default (list dict) }}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $conditions)) .) }}
{{- end }}
{{- $_ := set $ofNodes $required (dict "nodeSelectorTerms" $terms) }}
{{- $_ := set $affinity "nodeAffinity" $ofNodes }}
{{- end }}
{{- with $affinity }}{{ toJson . }}{{ end }}
{{- end }}

{{/* The arguments of the container, as a JSON list. */}}
{{- define "kubedevices.arguments" -}}
{{- $v := .v }}
{{- $found := list $v.plugin }}
{{- if eq $v.plugin "run" }}{{ $found = concat $found $v.arguments }}{{ end }}
{{- if include "kubedevices.configText" . }}
{{- $found = concat $found (list "--config" "/etc/kubedevices/config.yaml") }}
{{- end }}
{{- if eq $v.plugin "expose" }}{{ $found = concat $found (list "--dev-root" "/host/dev") }}{{ end }}
{{- if and (ne $v.pluginDir "/var/lib/kubelet/device-plugins") (include "kubedevices.hasPlugin" .) }}
{{- $found = concat $found (list "--socket-dir" $v.pluginDir) }}
{{- end }}
{{- if include "kubedevices.hasDra" . }}
{{- $found = concat $found (list "--mode" $v.mode) }}
{{- if eq $v.modeFile "configmap" }}
{{- $found = concat $found (list "--mode-file" "/etc/kubedevices/mode") }}
{{- else if $v.modeFile }}
{{- $found = concat $found (list "--mode-file" (printf "/etc/kubedevices-mode/%s" (base $v.modeFile))) }}
{{- end }}
{{- with $v.modeLabel }}{{ $found = concat $found (list "--mode-label" .) }}{{ end }}
{{- range $v.draDevices }}{{ $found = concat $found (list "--dra-devices" .) }}{{ end }}
{{- if ne $v.kubeletDir "/var/lib/kubelet" }}
{{- $found = concat $found (list "--kubelet-dir" $v.kubeletDir) }}
{{- end }}
{{- end }}
{{- if eq $v.plugin "proxy" }}{{ $found = concat $found (list "--plugin-dir" $v.insideDir "--plugin-registry" (printf "%s_registry" $v.insideDir)) }}{{ end }}
{{- $found = concat $found (list "--state-dir" "/var/lib/kubedevices") }}
{{- if $v.cdi }}{{ $found = concat $found (list "--inject" "cdi") }}{{ end }}
{{- $found = concat $found (list "--listen" "*:9400") }}
{{- if and (include "kubedevices.asksPodResources" .) (include "kubedevices.hasPlugin" .) }}
{{- $found = concat $found (list "--pod-resources" (printf "%s/pod-resources/kubelet.sock" $v.kubeletDir)) }}
{{- end }}
{{- with $v.controlSocketDir }}
{{- $found = concat $found (list "--control-socket" (printf "%s/control.sock" .)) }}
{{- end }}
{{- with $v.logFormat }}{{ $found = concat $found (list "--log-format" .) }}{{ end }}
{{- concat $found $v.extraArguments | toJson }}
{{- end }}

{{/* The directories of the host that the container mounts, as a JSON list. */}}
{{- define "kubedevices.volumes" -}}
{{- $v := .v }}
{{- $found := list }}
{{- if include "kubedevices.hasPlugin" . }}
{{- $found = append $found (dict "name" "plugins" "path" $v.pluginDir "type" "Directory") }}
{{- end }}
{{- if eq $v.plugin "expose" }}
{{- range $number, $path := $v.devDirs }}
{{- $isAll := eq $path "/dev" }}
{{- $found = append $found (dict "name" ($isAll | ternary "dev" (printf "dev-%d" $number)) "path" $path "inside" (printf "/host%s" $path) "type" ($isAll | ternary "Directory" "DirectoryOrCreate") "readOnly" true) }}
{{- end }}
{{- end }}
{{- if eq $v.plugin "proxy" }}
{{- $found = append $found (dict "name" "inside" "path" $v.insideDir "type" "DirectoryOrCreate") }}
{{- $found = append $found (dict "name" "inside-registry" "path" (printf "%s_registry" $v.insideDir) "type" "DirectoryOrCreate") }}
{{- end }}
{{- $found = append $found (dict "name" "state" "path" "/var/lib/kubedevices" "type" "DirectoryOrCreate" "readOnly" (not (has $v.plugin (list "proxy" "expose")))) }}
{{- range $number, $path := $v.hostDirs }}
{{- $found = append $found (dict "name" (printf "host-%d" $number) "path" $path "type" "DirectoryOrCreate" "readOnly" true) }}
{{- end }}
{{- range $number, $mount := $v.mounts }}
{{- $isReadOnly := ne (toString (get $mount "readOnly")) "false" }}
{{- $found = append $found (dict "name" (printf "mount-%d" $number) "path" $mount.path "inside" (get $mount "inside") "type" "Directory" "readOnly" $isReadOnly) }}
{{- end }}
{{- with $v.controlSocketDir }}
{{- $found = append $found (dict "name" "control" "path" . "type" "DirectoryOrCreate") }}
{{- end }}
{{- if include "kubedevices.hasDra" . }}
{{- $found = append $found (dict "name" "registry" "path" (printf "%s/plugins_registry" $v.kubeletDir) "type" "Directory") }}
{{- $found = append $found (dict "name" "driver" "path" (printf "%s/plugins/%s" $v.kubeletDir $v.domain) "type" "DirectoryOrCreate") }}
{{- end }}
{{- if and $v.modeFile (ne $v.modeFile "configmap") }}
{{- $found = append $found (dict "name" "mode" "path" (dir $v.modeFile) "inside" "/etc/kubedevices-mode" "type" "DirectoryOrCreate" "readOnly" true) }}
{{- end }}
{{- if or $v.cdi $v.writesCdi (include "kubedevices.hasDra" .) }}
{{- $found = append $found (dict "name" "cdi" "path" "/var/run/cdi" "type" "DirectoryOrCreate") }}
{{- end }}
{{- if or (include "kubedevices.asksPodResources" .) (include "kubedevices.hasDra" .) (eq $v.plugin "expose") }}
{{- $found = append $found (dict "name" "pod-resources" "path" (printf "%s/pod-resources" $v.kubeletDir) "type" "Directory" "readOnly" true) }}
{{- end }}
{{- $whole := list }}
{{- range $found }}
{{- $whole = append $whole (merge (dict "inside" (get . "inside" | default .path)) .) }}
{{- end }}
{{- toJson $whole }}
{{- end }}
