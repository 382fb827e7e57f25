"""Verbs for a cluster.

manifests           prints the manifests of a plugin or of a node
manifest_arguments  options that manifests, deploy and undeploy share
manifest_modes      `--mode`: device plugin, DRA driver, or both
manifest_kwok       fake nodes for KWOK
manifest_plugins    what a deployment needs for each kind of plugin
manifest_units      `--systemd`: a service of the host
manifest_values     `--values`: settings of an administrator
proxy_patch         `--patch`: moves another plugin behind the proxy
deploy              deploys a plugin, and says why it does not start
undeploy            deletes the objects that deploy created
kubectl             runs kubectl
"""
