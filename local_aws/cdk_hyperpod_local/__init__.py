"""A simulated AWS on this machine, for apps that use our constructs. Here: the app to deploy, and the engine's process.

`commands` builds on this. The engine runs in a process of its own; of its code, only a version number is read here.
May import: engine.kubernetes.control_plane.
"""
