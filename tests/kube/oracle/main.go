// SPDX-License-Identifier: Apache-2.0
// Prints what Prometheus' own Kubernetes discovery finds for each job of a prometheus.yaml, as JSON:
// {"job": [{label: value, ...}, ...]}. Its version is that of go.mod.
//
// usage: go run . PROMETHEUS_YAML SECONDS
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	_ "github.com/prometheus/prometheus/discovery/kubernetes"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	model.NameValidationScheme = model.UTF8Validation // as its main program sets it
	seconds, err := strconv.Atoi(os.Args[2])
	fail(err)
	loaded, err := config.LoadFile(os.Args[1], false, promslog.NewNopLogger())
	fail(err)
	registry := prometheus.NewRegistry()
	metrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	fail(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	manager := discovery.NewManager(ctx, logger, registry, metrics, discovery.Updatert(200*time.Millisecond))
	sections := map[string]discovery.Configs{}
	for _, job := range loaded.ScrapeConfigs {
		sections[job.JobName] = job.ServiceDiscoveryConfigs
	}
	go manager.Run()
	fail(manager.ApplyConfig(sections))
	var last map[string][]*targetgroup.Group
	for done := false; !done; {
		select {
		case last = <-manager.SyncCh():
		case <-ctx.Done():
			done = true
		}
	}
	out := map[string][]map[string]string{}
	for job, groups := range last {
		for _, group := range groups {
			for _, target := range group.Targets {
				labels := map[string]string{}
				for k, v := range group.Labels {
					labels[string(k)] = string(v)
				}
				for k, v := range target {
					labels[string(k)] = string(v)
				}
				for k, v := range labels {
					if v == "" {
						delete(labels, k)
					}
				}
				out[job] = append(out[job], labels)
			}
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	fail(encoder.Encode(out))
}
