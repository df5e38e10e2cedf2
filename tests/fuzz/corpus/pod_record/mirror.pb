
‘
monitor-node-7kube-system*$2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01b?
kubernetes.io/config.mirror 0123456789abcdef0123456789abcdefj
Noden0