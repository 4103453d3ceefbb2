"""What several functions need of AWS: clients, the meaning of its errors, and the answer to CloudFormation.

May import: kernel.
"""
