{{- define "rallypoint.name" -}}
{{- ternary "rallypoint-shadow" "training-operator" .Values.shadow.enabled -}}
{{- end }}
{{- define "rallypoint.lease" -}}
1ca428e5.training-operator.kubeflow.org
{{- end }}
{{- define "rallypoint.arguments.base" -}}
["--leader-elect=true"]
{{- end }}
{{- define "rallypoint.arguments.shadow" -}}
["--shadow", "--pprof-bind-address=127.0.0.1:6060"]
{{- end }}
{{- define "rallypoint.kinds" -}}
["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"]
{{- end }}
{{- define "rallypoint.flags" -}}
{"enableScheme": "enable-scheme", "controllerThreads": "controller-threads", "kubeApiQps": "kube-api-qps", "kubeApiBurst": "kube-api-burst", "kubeApiInFlight": "kube-api-in-flight", "metricsCertPath": "metrics-cert-path", "metricsCertName": "metrics-cert-name", "metricsCertKey": "metrics-cert-key", "metricsTokenAudiences": "metrics-token-audiences", "pprofBindAddress": "pprof-bind-address", "tracing": "tracing", "leaderElectionId": "leader-election-id", "leaderElectionNamespace": "leader-election-namespace", "lockNamespace": "lock-namespace", "gangSchedulerName": "gang-scheduler-name", "events": "events", "clusterDomain": "cluster-domain", "services": "services", "cleanFinishedPods": "clean-finished-pods", "maxReplicas": "max-replicas", "logFormat": "log-format", "logLevel": "log-level", "pytorchInitContainer": "pytorch-init-container", "pytorchInitContainerImage": "pytorch-init-container-image", "pytorchInitContainerTemplateFile": "pytorch-init-container-template-file", "pytorchInitContainerMaxTries": "pytorch-init-container-max-tries", "mpiKubectlDeliveryImage": "mpi-kubectl-delivery-image", "mpiWaitForWorkers": "mpi-wait-for-workers", "mpiSshCheck": "mpi-ssh-check", "mpiLauncherOnlyKey": "mpi-launcher-only-key", "mpiTopologyLabel": "mpi-topology-label"}
{{- end }}
{{- define "rallypoint.flags.onOff" -}}
["events", "pytorchInitContainer"]
{{- end }}
{{- define "rallypoint.rules.base" -}}
- apiGroups:
  - kubeflow.org
  resources:
  - pytorchjobs
  - tfjobs
  - xgboostjobs
  - paddlejobs
  - jaxjobs
  - mpijobs
  verbs:
  - get
  - list
  - watch
  - delete
- apiGroups:
  - kubeflow.org
  resources:
  - pytorchjobs/status
  - tfjobs/status
  - xgboostjobs/status
  - paddlejobs/status
  - jaxjobs/status
  - mpijobs/status
  verbs:
  - patch
- apiGroups:
  - kubeflow.org
  resources:
  - pytorchjobs/finalizers
  - tfjobs/finalizers
  - xgboostjobs/finalizers
  - paddlejobs/finalizers
  - jaxjobs/finalizers
  - mpijobs/finalizers
  verbs:
  - update
- apiGroups:
  - ''
  resources:
  - pods
  - services
  verbs:
  - get
  - list
  - watch
  - create
  - delete
- apiGroups:
  - ''
  resources:
  - events
  verbs:
  - create
  - patch
- apiGroups:
  - autoscaling
  resources:
  - horizontalpodautoscalers
  verbs:
  - get
  - create
  - patch
  - delete
- apiGroups:
  - scheduling.k8s.io
  - scheduling.volcano.sh
  - scheduling.x-k8s.io
  resources:
  - podgroups
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
{{- end }}
{{- define "rallypoint.rules.mpi" -}}
- apiGroups:
  - ''
  resources:
  - services
  verbs:
  - patch
- apiGroups:
  - ''
  resources:
  - configmaps
  verbs:
  - get
  - list
  - watch
  - create
  - patch
- apiGroups:
  - ''
  resources:
  - secrets
  verbs:
  - get
  - create
- apiGroups:
  - batch
  resources:
  - jobs
  verbs:
  - get
  - list
  - watch
  - create
  - patch
  - delete
- apiGroups:
  - batch
  resources:
  - jobs/status
  verbs:
  - patch
{{- end }}
{{- define "rallypoint.rules.mpi-v1" -}}
- apiGroups:
  - ''
  resources:
  - serviceaccounts
  verbs:
  - get
  - create
- apiGroups:
  - rbac.authorization.k8s.io
  resources:
  - roles
  - rolebindings
  verbs:
  - get
  - create
  - patch
- apiGroups:
  - apps
  resources:
  - statefulsets
  verbs:
  - get
  - delete
- apiGroups:
  - ''
  resources:
  - pods/exec
  verbs:
  - get
  - create
{{- end }}
{{- define "rallypoint.rules.mxjob" -}}
- apiGroups:
  - kubeflow.org
  resources:
  - mxjobs
  verbs:
  - get
  - list
  - watch
  - delete
- apiGroups:
  - kubeflow.org
  resources:
  - mxjobs/status
  verbs:
  - patch
- apiGroups:
  - kubeflow.org
  resources:
  - mxjobs/finalizers
  verbs:
  - update
{{- end }}
{{- define "rallypoint.rules.progress" -}}
- apiGroups:
  - ''
  resources:
  - pods/log
  verbs:
  - get
{{- end }}
{{- define "rallypoint.rules.progress-exec" -}}
- apiGroups:
  - ''
  resources:
  - pods/exec
  verbs:
  - get
  - create
{{- end }}
