module oracle

go 1.22

require github.com/prometheus/prometheus v0.300.1 // 3.0.1
