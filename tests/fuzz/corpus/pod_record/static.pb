
£
monitor-node-7kube-system* 0123456789abcdef0123456789abcdefb=
kubernetes.io/config.hash 0123456789abcdef0123456789abcdefb#
kubernetes.io/config.sourcefile