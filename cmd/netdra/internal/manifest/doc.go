// Package manifest reads the YAML files that users write: topologies, policies, schemas and objects of Kubernetes.
//
// The rule of this package: reading is strict, and every problem names file, line and field. What is absent is as the
// API server would set it.
//
// [Read] cuts a file into documents and looks at nothing but their kinds. What a kind means is read by a function of
// its own, and judged by those functions that the controller and the webhook use.
package manifest
