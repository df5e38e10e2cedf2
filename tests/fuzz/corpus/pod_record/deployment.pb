
Å

web-7d4b-xteam*$2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01B•Î‹ Z

appwebZ
pod-template-hash7d4bj

ReplicaSetweb-7d4b0	
mainx√
RunningBU
mainBMcontainerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefRQ
setupBHcri-o://fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210z
gpuweb-gpu