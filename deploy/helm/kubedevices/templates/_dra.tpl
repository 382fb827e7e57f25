{{- define "kubedevices.dra" }}
{{- $whole := printf "%s.%s" .root.Release.Namespace .name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "kubedevices.clusterMetadata" . | nindent 2 }}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get, list]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch, create, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "kubedevices.clusterMetadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $whole }}}
subjects:
- {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "kubedevices.clusterMetadata" . | nindent 2 }}
spec:
  {{- $slice := "(request.operation == \"DELETE\" ? oldObject : object).spec" }}
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE], resources: [resourceslices]}
  matchConditions:
  - name: driver
    expression: {{ printf "request.userInfo.username == \"system:serviceaccount:%s:%s\"" .root.Release.Namespace .name | toJson }}
  variables:
  - name: node
    expression: request.userInfo.?extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  validations:
  - expression: variables.node != ""
    message: the token of this account belongs to no pod on a node
    reason: Forbidden
  - expression: {{ printf "variables.node == %s.?nodeName.orValue(\"\")" $slice | toJson }}
    messageExpression: '"this account may write slices of the node " + variables.node + " only, where its pod runs"'
    reason: Forbidden
  - expression: {{ printf "%s.driver == \"%s\"" $slice .v.domain | toJson }}
    message: this account may write slices of the driver {{ .v.domain }} only
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "kubedevices.clusterMetadata" . | nindent 2 }}
spec:
  policyName: {{ $whole }}
  validationActions: [Deny]
{{- range $type := .v.deviceTypes }}
{{- $clean := regexReplaceAll "[^a-z0-9.-]+" (lower $type) "-" | trimAll "-." }}
{{- if ne $clean $type }}
{{- $tail := sha256sum $type | trunc 8 }}
{{- $clean = ternary (printf "%s-%s" $clean $tail) $tail (ne $clean "") }}
{{- end }}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  {{- $about := include "kubedevices.clusterMetadata" $ | fromYaml }}
  {{- $_ := set $about "name" (printf "%s.%s" $clean $.v.domain | trunc 253) }}
  {{- toYaml $about | nindent 2 }}
spec:
  selectors:
  - cel:
      expression: {{ printf "device.driver == \"%s\" && device.attributes[\"%s\"].type == \"%s\"" $.v.domain $.v.domain $type | toJson }}
  {{- with $.v.extendedResourceName }}
  extendedResourceName: {{ . | replace "{domain}" $.v.domain | replace "{type}" $type | toJson }}
  {{- end }}
{{- end }}
{{- end }}
