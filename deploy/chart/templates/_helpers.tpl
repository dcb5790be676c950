{{- /* The image in .image. The tag defaults to the chart's appVersion; a digest takes precedence over the tag. */ -}}
{{- define "image" -}}
{{- with .of.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* An address host:port as the two fields of a probe; only the port if the address covers all interfaces. */ -}}
{{- define "probed" -}}
{{- $parts := regexSplit ":" . -1 -}}
{{- $host := initial $parts | join ":" | trimAll "[]" -}}
{{- if not (has $host (list "" "0.0.0.0" "::")) }}host: {{ $host | quote }}, {{ end }}port: {{ last $parts }}
{{- end -}}

{{- /* Not empty for an address host:port that only the node itself can reach. */ -}}
{{- define "loopback" -}}
{{ if or (hasPrefix "127." .) (hasPrefix "[::1]:" .) }}yes{{ end }}
{{- end -}}

{{- define "port" -}}
{{ regexSplit ":" . -1 | last }}
{{- end -}}

{{- /* Whether to mount the directory of OVN-Kubernetes: not if it is already one of extraMounts, as in older installations. */}}
{{- define "mountsOVN" -}}
{{- $paths := list "" }}
{{- range .Values.node.extraMounts }}
{{- $paths = append $paths (.mountPath | default .hostPath) }}
{{- end }}
{{- not (has .Values.paths.ovnKubernetes $paths) }}
{{- end }}
