// A cluster of somebody else's app, in TypeScript, which Node runs as it is. Nothing of cdk-hyperpod is in it.
import { App, Stack, type StackProps } from 'aws-cdk-lib';
import { ManagedPolicy, Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { CfnCluster } from 'aws-cdk-lib/aws-sagemaker';
import type { Construct } from 'constructs';

interface TrainingProps extends StackProps {
  readonly count: number;
}

class TrainingStack extends Stack {
  constructor(scope: Construct, id: string, props: TrainingProps) {
    super(scope, id, props);
    const scripts = new Bucket(this, 'Scripts', { enforceSSL: true });
    const role = new Role(this, 'Nodes', {
      assumedBy: new ServicePrincipal('sagemaker.amazonaws.com'),
      managedPolicies: [ManagedPolicy.fromAwsManagedPolicyName('AmazonSageMakerClusterInstanceRolePolicy')],
    });
    scripts.grantRead(role);
    new CfnCluster(this, 'Cluster', {
      clusterName: 'typescript',
      instanceGroups: [{
        instanceGroupName: 'workers',
        instanceType: 'ml.m5.xlarge',
        instanceCount: props.count,
        executionRole: role.roleArn,
        lifeCycleConfig: { sourceS3Uri: scripts.s3UrlForObject('scripts'), onCreate: 'on_create.sh' },
      }],
    });
  }
}

const app = new App();
new TrainingStack(app, 'Training', { count: Number(app.node.tryGetContext('count')) });
