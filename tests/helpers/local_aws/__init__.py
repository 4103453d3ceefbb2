"""What tests need beside the local AWS: engines of their own, clusters that live on them, templates that lack a right."""
