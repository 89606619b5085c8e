{{/* The name of the operator's objects. */}}
{{- define "rallypoint.fullname" -}}
{{- .Values.fullnameOverride | default (include "rallypoint.name" .) -}}
{{- end }}

{{/* The image, by its digest if there is one. */}}
{{- define "rallypoint.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* The name of training-operator's Lease, or of another one. */}}
{{- define "rallypoint.leaseName" -}}
{{- .Values.flags.leaderElectionId | default (include "rallypoint.lease" .) -}}
{{- end }}

{{/* The namespaces of the Leases, as JSON. */}}
{{- define "rallypoint.leaseNamespaces" -}}
{{- $leader := .Values.flags.leaderElectionNamespace | default .Release.Namespace -}}
{{- list $leader (.Values.flags.lockNamespace | default $leader) | uniq | toJson -}}
{{- end }}

{{/* The name of the Role in a namespace: [root, namespace]. In namespaces of others it says whose it is. */}}
{{- define "rallypoint.roleName" -}}
{{- $root := first . -}}
{{- $name := include "rallypoint.fullname" $root -}}
{{- if eq (last . ) $root.Release.Namespace -}}{{ $name }}{{- else -}}{{ printf "%s-%s" $root.Release.Namespace $name }}{{- end -}}
{{- end }}

{{/* The kinds to serve, as JSON: none if they are the operator's own default. */}}
{{- define "rallypoint.served" -}}
{{- $default := include "rallypoint.kinds" . | fromJsonArray -}}
{{- $served := $default -}}
{{- if not .Values.mpi.enabled -}}
{{- $served = without $served "MPIJob" -}}
{{- end -}}
{{- if .Values.mxjob.enabled -}}
{{- $served = append $served "MXJob" -}}
{{- end -}}
{{- if .Values.flags.enableScheme -}}
{{- $served = .Values.flags.enableScheme -}}
{{- else if eq (toJson $served) (toJson $default) -}}
{{- $served = list -}}
{{- end -}}
{{- toJson $served -}}
{{- end }}

{{/* The arguments of the container, as YAML. */}}
{{- define "rallypoint.arguments" -}}
{{- $base := ternary "rallypoint.arguments.shadow" "rallypoint.arguments.base" .Values.shadow.enabled -}}
{{- $arguments := include $base . | fromJsonArray -}}
{{- if eq .Values.watchNamespace .Release.Namespace -}}
{{- $arguments = append $arguments "--namespace=$(MY_POD_NAMESPACE)" -}}
{{- else if .Values.watchNamespace -}}
{{- $arguments = append $arguments (printf "--namespace=%s" .Values.watchNamespace) -}}
{{- end -}}
{{- if .Values.kueue.enabled -}}
{{- $arguments = append $arguments "--kueue=true" -}}
{{- end -}}
{{- range include "rallypoint.served" . | fromJsonArray -}}
{{- $arguments = append $arguments (printf "--enable-scheme=%s" .) -}}
{{- end -}}
{{- if .Values.secureMetrics.enabled -}}
{{- $arguments = append $arguments "--metrics-secure=true" -}}
{{- end -}}
{{- $names := include "rallypoint.flags" . | fromJson -}}
{{- $onOff := include "rallypoint.flags.onOff" . | fromJsonArray -}}
{{- range $name, $value := omit .Values.flags "enableScheme" -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $text := kindIs "string" $value | ternary $value (toJson $value) -}}
{{- if and (kindIs "bool" $value) (has $name $onOff) -}}
{{- $text = ternary "on" "off" $value -}}
{{- end -}}
{{- $arguments = append $arguments (printf "--%s=%s" (get $names $name) $text) -}}
{{- end -}}
{{- end -}}
{{- concat $arguments .Values.extraArgs | toYaml -}}
{{- end }}

{{/* Stops with a message that names the value, if values contradict each other. */}}
{{- define "rallypoint.validate" -}}
{{- $values := .Values -}}
{{- if $values.shadow.enabled -}}
{{- range $name := list "kueue" "mpiV1" "mpiTopology" "mpiVersions" "mpiFlavorPolicy" "mxjob" "networkPolicy" "progress" "progressExec" "secureMetrics" "userRoles" -}}
{{- if (get $values $name).enabled -}}
{{- fail (printf "%s.enabled: not possible with shadow.enabled, whose release has nothing but the shadow" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "serviceMonitor" "alerts" "dashboards" -}}
{{- if get $values.monitoring $name -}}
{{- fail (printf "monitoring.%s: not possible with shadow.enabled, whose release has nothing but the shadow" $name) -}}
{{- end -}}
{{- end -}}
{{- if $values.watchNamespace -}}
{{- fail "watchNamespace: not possible with shadow.enabled, which compares the jobs of all namespaces" -}}
{{- end -}}
{{- end -}}
{{- if $values.watchNamespace -}}
{{- range $name := list "kueue" "mpiTopology" "mpiVersions" "mpiFlavorPolicy" "secureMetrics" "userRoles" -}}
{{- if (get $values $name).enabled -}}
{{- fail (printf "%s.enabled: not possible with watchNamespace, because it installs cluster-scoped objects" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.mpiV1.enabled (not $values.mpi.enabled) -}}
{{- fail "mpiV1.enabled: needs mpi.enabled" -}}
{{- end -}}
{{- if and $values.flags.mpiTopologyLabel (not $values.mpiTopology.enabled) -}}
{{- fail "flags.mpiTopologyLabel: needs mpiTopology.enabled, the right to read nodes" -}}
{{- end -}}
{{- range $name := list "metricsCertPath" "metricsTokenAudiences" -}}
{{- if and (get $values.flags $name) (not $values.secureMetrics.enabled) -}}
{{- fail (printf "flags.%s: needs secureMetrics.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- $served := $values.flags.enableScheme | default list -}}
{{- if and (has "MPIJob" $served) (not $values.mpi.enabled) -}}
{{- fail "flags.enableScheme: MPIJob needs mpi.enabled" -}}
{{- end -}}
{{- if and (has "MXJob" $served) (not $values.mxjob.enabled) -}}
{{- fail "flags.enableScheme: MXJob needs mxjob.enabled" -}}
{{- end -}}
{{- end }}
