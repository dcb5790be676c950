{{- /* The image of .image, whose tag is the chart's appVersion unless it says another, or a digest. */ -}}
{{- define "image" -}}
{{- with .of.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* An address host:port as the two fields of a probe; of all addresses, the port alone. */ -}}
{{- define "probed" -}}
{{- $parts := regexSplit ":" . -1 -}}
{{- $host := initial $parts | join ":" | trimAll "[]" -}}
{{- if not (has $host (list "" "0.0.0.0" "::")) }}host: {{ $host | quote }}, {{ end }}port: {{ last $parts }}
{{- end -}}

{{- /* Not empty for an address host:port that only the node itself reaches. */ -}}
{{- define "loopback" -}}
{{ if or (hasPrefix "127." .) (hasPrefix "[::1]:" .) }}yes{{ end }}
{{- end -}}

{{- define "port" -}}
{{ regexSplit ":" . -1 | last }}
{{- end -}}

{{- /* Whether the folder of OVN-Kubernetes is to be mounted: not if it is one of extraMounts, as it was before the chart did so. */}}
{{- define "mountsOVN" -}}
{{- $paths := list "" }}
{{- range .Values.node.extraMounts }}
{{- $paths = append $paths (.mountPath | default .hostPath) }}
{{- end }}
{{- not (has .Values.paths.ovnKubernetes $paths) }}
{{- end }}
