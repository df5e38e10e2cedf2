// SPDX-License-Identifier: Apache-2.0
// Ceilings on what comes from outside, each with its reason. What one file's own arrays hold stands
// there.
#pragma once

// Configuration files: a stock counters file is 10 KB; 1 MiB is a hundred times more.
#define LIMIT_CONFIG_FILE_BYTES (1u << 20)
#define LIMIT_CONFIG_DEPTH 64 // YAML nesting; libyaml is quadratic beyond
// YAML values, aliases counted as what they stand for: 100 B each.
#define LIMIT_CONFIG_NODES (1u << 17)
#define LIMIT_CONFIG_ANCHORS 1024
#define LIMIT_CONFIG_TREE_BYTES (32u << 20) // twice what that many values and a file's text take
// Watch groups or collections of a configuration file: each has its own period.
#define LIMIT_CONFIG_GROUPS 256
#define LIMIT_COUNTERS 1024 // rows of a counters file: the catalogue has 657 fields
#define LIMIT_COUNTER_LINE_BYTES 4096

// Devices: DCGM knows 32 GPUs, 8 instances each; an HGX board has 8 x 18 links and as many at its
// switches; two Grace sockets have 144 cores, and DCGM knows 8 sockets.
#define LIMIT_GPUS 64
#define LIMIT_ENTITIES 4096
#define LIMIT_VERDICTS 1024 // of one DCGM health check
#define LIMIT_XID_CODES 256 // different codes kept per device: NVIDIA's catalogue ends at 172
// dcgm-exporter's windowed counters: parts of a window (32 B each and GPU), XIDs remembered of a
// GPU (32 B each), GPUs remembered.
#define LIMIT_EXP_BUCKETS 600
#define LIMIT_EXP_XIDS 1024
#define LIMIT_EXP_DEVICES 256
#define LIMIT_VALUE_STRING_BYTES 1024 // one text value: names, serials and versions are under 100
#define LIMIT_INVENTORY_STRING_BYTES (8u << 20) // all text values together

// A USAGE frame: spans of a device (6 a second, the driver keeps 120), shares and processes of all
// devices (a node runs some hundreds).
#define LIMIT_USAGE_SPANS (LIMIT_GPUS * 8 * 128)
#define LIMIT_USAGE_SHARES (1u << 16)
#define LIMIT_USAGE_PROCESSES (1u << 15)
#define LIMIT_USAGE_DEVICE_PROCESSES                                                               \
    4096 // of one device; more are left out, flag PROCESSES not set

#define LIMIT_USAGE_COUNTED 1024  // unnamed pods and undeclared containers that are told apart
#define LIMIT_USAGE_BINDINGS 1024 // pods named by elimination: a node runs 250

// The ledger: containers on this node's GPUs, and of them ended ones whose counters still stay (a
// node runs 250 pods; 2,000 Jobs of 10 s in 5 minutes); spans and shares of a device that wait.
#define LIMIT_LEDGER_CONTAINERS 8192
#define LIMIT_LEDGER_ENDED 2048
#define LIMIT_LEDGER_ACCOUNTS 16384 // containers x devices of each: 250 pods on 64 GPUs
#define LIMIT_LEDGER_DEVICES 8192   // instances of MIG layouts that are gone keep their totals
#define LIMIT_LEDGER_SPANS 1024
#define LIMIT_LEDGER_SHARES 8192

// Processes on GPUs whose pods are known (200 B each); pods and names of a node.
#define LIMIT_PROCESS_MAP 16384
#define LIMIT_PROC_FILE_BYTES (16u << 10) // of /proc/PID/cgroup: 13 lines of 200 B
#define LIMIT_POD_RECORD_LABELS 1024
#define LIMIT_POD_RECORD_CONTAINERS 1024
#define LIMIT_POD_RECORD_CLAIMS 256
#define LIMIT_POD_RECORD_BYTES (16u << 20) // arrays of one pod while it is read: an object of 4 MiB
#define LIMIT_PODS_API_BYTES (64u << 20)   // an answer: 250 pods of 20 KB
#define LIMIT_PODS_API_POD_BYTES (4u << 20)
#define LIMIT_POD_LOGS_ENTRIES 16384
#define LIMIT_POD_LOGS_BYTES (16u << 20) // of those names while they are read: 1 KiB each
// DRA: devices in the ResourceSlices of this node, bytes of their names.
#define LIMIT_DRA_DEVICES 4096
#define LIMIT_DRA_NAME_BYTES 256
#define LIMIT_DRA_SLICES 512 // of NVIDIA's driver: one a GPU and one of shared counters

// Helper process frames: 64 GPUs x 8 instances x 128 fields x 24 B = 1.5 MiB.
#define LIMIT_FRAME_BYTES (4u << 20)
// A helper past these is broken: 4 classes sampled every 10 ms make 400 frames a second.
#define LIMIT_FRAMES_PER_S 4096
#define LIMIT_FRAME_BYTES_PER_S (64u << 20)
#define LIMIT_FRAME_TURN_BYTES (1u << 20) // read of one helper before the loop sees to others
#define LIMIT_HELPERS 2 // processes of one source alive, killed ones that do not die included

// kubelet answers: 5.8 MB seen in the field (docs/compat.md); a pod's own message is far smaller.
#define LIMIT_POD_RESOURCES_BYTES (64u << 20)
#define LIMIT_POD_RESOURCES_POD_BYTES (4u << 20)
// Of one pod: 3 times its bytes for 8,000 devices.
#define LIMIT_POD_RESOURCES_DECODED_BYTES (32u << 20)
#define LIMIT_POD_DEVICES 65536        // (pod, container, device) rows kept of a node
#define LIMIT_POD_DEVICE_ID_BYTES 1024 // the longest known form has 60
// Names and ids of those rows: 45 bytes each in practice.
#define LIMIT_POD_DEVICES_STRING_BYTES (16u << 20)
// Of an answer, head and trailers; a message text is the longest of them.
#define LIMIT_GRPC_HEADER_BYTES (64u << 10)
#define LIMIT_GRPC_REQUEST_BYTES (64u << 10) // the kubelet's requests are empty or two names
#define LIMIT_LABEL_VALUE_BYTES (64u << 10)  // longer label values are cut at a character boundary

// Pod labels on the page: Kubernetes takes values of 63 bytes and keys of 317; pods have 5 to 20.
#define LIMIT_POD_LABELS 64
#define LIMIT_POD_LABELS_BYTES (8u << 10) // of a pod, names and values
#define LIMIT_POD_LABEL_PATTERNS 64       // each may take LIMIT_REGEX_PROGRAM_BYTES
#define LIMIT_POD_METADATA_PODS 4096      // a node runs 250 pods; without NODE_NAME it is a cluster
#define LIMIT_POD_METADATA_BYTES (4u << 20) // of all of them: 1 KiB a pod
#define LIMIT_POD_KEY_BYTES 640             // "namespace/name": 317 in Kubernetes

// HPC job mapping: a file for each GPU and instance, a line for each job on it.
#define LIMIT_HPC_FILES LIMIT_ENTITIES
#define LIMIT_HPC_DIRECTORY_ENTRIES 16384 // looked at every second
#define LIMIT_HPC_FILE_BYTES (1u << 20)
#define LIMIT_HPC_LINE_BYTES (64u << 10) // dcgm-exporter's own limit
#define LIMIT_HPC_JOBS 256               // of a GPU: each is a copy of all its series

// Pages: 56 instances x 120 fields is 2.5 MB.
#define LIMIT_PAGE_BYTES (32u << 20)
#define LIMIT_PAGES_LIVE 3
#define LIMIT_ENTITY_COPIES 1024 // holders x jobs of one device: a node runs 250 pods at most
// Families x samples: shorter lines than 32 bytes there are not.
#define LIMIT_PAGE_SAMPLES (1u << 20)

// Descriptors: what the HTTP connections leave is for the loop, the helpers (4 each, 6 more while
// one starts), the kubelet, the files of a reload and the admin socket.
#define LIMIT_DESCRIPTORS 1024
#define LIMIT_DESCRIPTORS_RESERVED 64

// HTTP server (design: connections, deadlines)
#define LIMIT_HTTP_CONNECTIONS 256 // at 7/8 of them the longest idle one is shut for a new one
#define LIMIT_ADMIN_CONNECTIONS 16 // control tools on this machine
#define LIMIT_HTTP_CONNECTIONS_PER_IP 64
#define LIMIT_HTTP_CONNECTION_BYTES (8u << 10)
#define LIMIT_HTTP_HEADERS_MS 5000
#define LIMIT_HTTP_IDLE_MS 90000
#define LIMIT_HTTP_SWEEP_MS 250
#define LIMIT_HTTP_SWEEP_IDLE_MS 1000 // all connections idle: they have 90 s
#define LIMIT_HTTP_SEND_MS 30000 // one answer: no scrape timeout is longer, and 2.5 MB need 85 KB/s
// Kernel memory of a stalled reader; takes the 73 KB page in one call.
#define LIMIT_HTTP_SEND_BUFFER_BYTES (128u << 10)
#define LIMIT_HTTP_LISTENERS 8                 // sockets handed over by systemd
#define LIMIT_HTTP_GZIP_LEAST_BYTES (1u << 10) // below, gzip saves no packet
#define LIMIT_HTTP_GZIP_LOOP_BYTES (1u << 20)  // 1 ms at level 1; larger bodies go to the pool
#define LIMIT_HTTP_CREDENTIALS_BYTES 1024      // user:password; bcrypt reads 72 bytes of a password
#define LIMIT_HTTP_AUTH_CACHE 100        // results of password checks, as the exporter-toolkit
#define LIMIT_HTTP_AUTH_PENDING 16       // password checks at a time: a second of work at cost 10
#define LIMIT_HTTP_AUTH_PENDING_PER_IP 8 // so that one address cannot take all
#define LIMIT_WEB_USERS 1024
#define LIMIT_WEB_HEADER_BYTES 2048 // all configured headers: they share a connection's 8 KiB

// HTTP client
#define LIMIT_HTTP_CLIENT_CALLS 4096 // alive: a thousand targets, some seconds each
#define LIMIT_HTTP_CLIENT_HEADER_BYTES                                                             \
    (256u << 10)                         // of an answer, redirects included: 1 KB in practice
#define LIMIT_HTTP_CLIENT_HEADERS 256    // of a request
#define LIMIT_HTTP_CLIENT_CONNECTIONS 16 // kept beside those of handles

// JSON: a page of 50 API objects with managed fields is 500 KB and 20,000 values; an object is 1.5
// MiB at most.
#define LIMIT_JSON_BYTES (16u << 20)
#define LIMIT_JSON_VALUES (1u << 18) // 120 B each in the tree
#define LIMIT_JSON_TREE_BYTES (64u << 20)

// The Kubernetes API. etcd takes objects of 1.5 MiB; as JSON, with each byte escaped, they are
// larger.
#define LIMIT_KUBE_OBJECT_BYTES (4u << 20)
#define LIMIT_KUBE_LIST_REST_BYTES (64u << 10) // of a list, beside its objects; or of a refusal
#define LIMIT_KUBE_OBJECTS (1u << 18)          // of one watch; clusters end at 150,000 pods
#define LIMIT_KUBE_URL_BYTES (16u << 10)       // selectors and a continue token of 1 KB
#define LIMIT_KUBE_SELECTOR_BYTES 4096         // of one selector, or a namespace's name
#define LIMIT_KUBE_ACCESS_BYTES (4u << 20)     // what a kubeconfig says of one server
// Of one object: a thousand addresses with three ports and the labels of their pods take 10 MB.
#define LIMIT_KUBE_GROUP_BYTES (64u << 20)
#define LIMIT_KUBE_SECRET_BYTES (16u << 10) // a file with a token: 1 KB in practice

// Regular expressions: Prometheus users list a few hundred metric names in one.
#define LIMIT_REGEX_BYTES (64u << 10)
#define LIMIT_REGEX_PROGRAM_BYTES (1u << 20) // of a pattern, program and caches
// Programs of one configuration's patterns: 2 KB each in practice; compiling this much takes some
// seconds.
#define LIMIT_REGEXES_BYTES (64u << 20)

// Agent: labels and relabelling.
#define LIMIT_LABELS 2048              // of a target: four for each label and annotation of a pod
#define LIMIT_RELABEL_RULES 1024       // of a list: the longest seen have under 100
#define LIMIT_RELABEL_BYTES (8u << 20) // of a list's rules
#define LIMIT_PROM_JOBS 4096           // of a prometheus.yaml: people have some dozens
#define LIMIT_PROM_CONFIG_BYTES (64u << 20) // of one, read: 60 times the largest file
#define LIMIT_PROM_IGNORED_BYTES 4096       // names of keys without effect: there are 50, each once
// cwagentconfig.json, which may be several files: a ConfigMap holds 1 MiB.
#define LIMIT_CW_FILES 64
#define LIMIT_CW_TEXT_BYTES (4u << 20)    // of all of them
#define LIMIT_CW_CONFIG_BYTES (32u << 20) // read: texts are copied, small arrays stand beside them
#define LIMIT_CW_IGNORED_BYTES 4096       // names of keys without effect; more are not named
#define LIMIT_CW_DECLARATIONS 1024        // people have one a job
#define LIMIT_CW_SELECTORS 8192           // of all declarations: some KB each
#define LIMIT_CW_DIMENSION_SETS 1000      // of a declaration: each is a metric that is paid for
#define LIMIT_CW_UNITS (1u << 14)

// Agent: series.
#define LIMIT_TARGET_SERIES                                                                        \
    (1u << 20) // of one target: a large cluster's kube-state-metrics; 64 MiB
#define LIMIT_SERIES_LABELS_BYTES                                                                  \
    (1u << 20) // of one series, relabelling included; 500 B in practice

// Reading metrics: kube-state-metrics, one of the longest pages, has 500 families.
#define LIMIT_PARSE_FAMILIES (1u << 16) // 24 B each and 8 B of table

// Agent: events that wait for a file, a pipe or a TCP server; a node makes some 100 KiB a minute.
#define LIMIT_EVENT_OUTPUT_BYTES (16u << 20)
#define LIMIT_CONFIG_MESSAGES_BYTES (256u << 10) // everything that is wrong with a configuration
#define LIMIT_AGENT_PAGE_BYTES (1u << 20)
#define LIMIT_AGENT_TARGETS_BYTES (32u << 20) // /targets: 10,000 targets of a cluster's pods
#define LIMIT_AGENT_PAGES_LIVE 3              // of those, large ones, while slow readers take them

// CloudWatch Logs
#define LIMIT_LOGS_CONNECTIONS 8         // kept open, and requests at a time; the others queue
#define LIMIT_LOGS_BODY_BYTES (8u << 20) // a batch of 1 MiB, each byte of it escaped by six
#define LIMIT_LOGS_GZIP_LEAST_BYTES (1u << 10) // below, gzip saves no packet
#define LIMIT_LOGS_ANSWER_BYTES (64u << 10)    // CloudWatch Logs' are under 1 KB
#define LIMIT_LOGS_MAKERS 4096 // groups and streams being made: as many as requests may be alive

// Agent: targets and their scrapes.
#define LIMIT_AGENT_DESCRIPTORS (LIMIT_TARGETS + LIMIT_DESCRIPTORS) // wanted; what is let counts
#define LIMIT_TARGETS (1u << 14)       // of a program: one connection each; nodes have dozens
#define LIMIT_TARGET_GROUPS (1u << 16) // of a job: a kubernetes_sd_config gives one for each pod
#define LIMIT_TARGET_GROUP_BYTES (64u << 20)   // labels of one group before relabelling
#define LIMIT_TARGET_BUILD_BYTES (8u << 20)    // one target while it is relabelled
#define LIMIT_SCRAPE_BODY_BYTES (64u << 20)    // the longest pages seen have 40 MB
#define LIMIT_SCRAPE_BODIES_BYTES (256u << 20) // of all scrapes under way together
#define LIMIT_SCRAPES_ONCE 256 // under way at a time when all targets are asked at once
#define LIMIT_HTTP_SECRET_BYTES (64u << 10) // a token or password in a file; headers end before

// Agent: discovery.
#define LIMIT_SD_FILES 1024                   // that one file_sd_config's patterns lead to
#define LIMIT_SD_TARGETS (1u << 16)           // of one document
#define LIMIT_SD_DIRECTORY_ENTRIES (1u << 16) // looked at for one pattern

// AWS: credentials and what the instance knows.
#define LIMIT_AWS_ANSWER_BYTES (64u << 10) // of STS, EC2, the metadata: 4 KB in practice
#define LIMIT_AWS_FILE_BYTES (256u << 10)  // ~/.aws/config: people with 500 profiles have 60 KB
#define LIMIT_AWS_FILE_LINES 16384         // of settings in it: 40 B each
#define LIMIT_AWS_TOKEN_BYTES (12u << 10)  // web identity and session tokens: 1 to 4 KB
#define LIMIT_AWS_KEY_BYTES 1024           // an access key has 20 characters, its secret 40
#define LIMIT_AWS_ROLES 5                  // role on role; each is a request
#define LIMIT_AWS_TAG_PAGES 16             // of an instance's tags: it has 50 at most

// XML: answers of the AWS query services.
#define LIMIT_XML_BYTES (1u << 20)
#define LIMIT_XML_DEPTH 32
#define LIMIT_XML_ELEMENTS (1u << 16) // 80 B each in the tree
#define LIMIT_XML_TREE_BYTES (8u << 20)

// Embedded metric format.
#define LIMIT_EMF_EVENT_BYTES (262144u - 26u) // CloudWatch Logs counts 26 bytes more for each event
#define LIMIT_EMF_EVENT_METRICS 100           // the format's own, as the next
#define LIMIT_EMF_VALUES 100                  // of one metric in one event
#define LIMIT_EMF_BUCKETS (1u << 12)          // of a histogram; clients have some tens
#define LIMIT_EMF_DIMENSION_BYTES 1024        // of a dimension's value
#define LIMIT_EMF_NAME_BYTES 512              // of a log group or stream
// Different label pairs, metric names, rules, groups of a target, custom metrics: 1 M of them cost
// a user 300,000 USD a month.
#define LIMIT_EMF_ITEMS (1u << 20)
// Metrics with equal labels, kept in order: large applications have some thousands.
#define LIMIT_EMF_GROUP_METRICS (1u << 14)
#define LIMIT_EMF_TEXT_BYTES (16u << 20)   // an event while it is made, of the shortest metrics
#define LIMIT_EMF_SERIES_BYTES (64u << 20) // of a series while it is added
// Agent: spool and delivery.
// A file of the spool: four records of the largest kind, so that one that is dropped or read at
// start is small beside the whole.
#define LIMIT_SPOOL_SEGMENT_BYTES (5 << 20)
#define LIMIT_SPOOL_SEGMENTS 4096 // 256 MiB are 64
// Batches that wait, on disk too: 100 B of memory each; 256 MiB of batches of 2 KiB.
#define LIMIT_DELIVERY_BATCHES (1u << 17)
#define LIMIT_DELIVERY_STREAMS 4096 // with events or batches at a time: one a job, pod or task
// Batches that are in memory alone: without a directory, and while its disk is full.
#define LIMIT_DELIVERY_MEMORY_BYTES (16u << 20)
// Batches in memory though they are on disk, because they are about to be sent.
#define LIMIT_DELIVERY_LOADED_BYTES (8u << 20)
