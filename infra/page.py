"""The page for people in the cloud: static files in a bucket behind CloudFront. The relay's facts
are filled in at the deployment, and no function is called to serve the files."""

from aws_cdk import Stack
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_deployment as deployment_of_files
from constructs import Construct

from farthing.settings import Settings
from infra.deployment import Deployment
from infra.records import removal_policy
from infra.shared import told
from infra.web import pages

ORIGIN = "pages"  # the script that chooses an origin knows it by this name
BUCKET = "pages-bucket"
_ASSETS = "/assets/*"
# The pages come last: the CDK puts what all deployments share into the first one.
_DEPLOYMENTS = {"Assets": pages.FOR_EVER, "Lasting": pages.SHORT, "Pages": pages.ALWAYS_ASK}


class PageBucket(Construct):
    """The bucket, and how CloudFront serves it. Only CloudFront may read it."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal_policy(deployment),
        )
        self.origin = origins.S3BucketOrigin.with_origin_access_control(
            self.bucket, origin_id=ORIGIN
        )
        # Headers that a handler sets for its own page are kept. Files of the bucket have none.
        self.headers = cloudfront.ResponseHeadersPolicy(
            self,
            "Headers",
            response_headers_policy_name=f"{deployment.prefix}page",
            custom_headers_behavior=cloudfront.ResponseCustomHeadersBehavior(
                custom_headers=[
                    cloudfront.ResponseCustomHeader(
                        header="Cross-Origin-Opener-Policy", value="same-origin", override=False
                    )
                ]
            ),
            # Pages of others may load pay.js from here.
            cors_behavior=cloudfront.ResponseHeadersCorsBehavior(
                access_control_allow_credentials=False,
                access_control_allow_headers=["*"],
                access_control_allow_methods=["GET", "HEAD"],
                access_control_allow_origins=["*"],
                origin_override=False,
            ),
            security_headers_behavior=cloudfront.ResponseSecurityHeadersBehavior(
                content_security_policy=cloudfront.ResponseHeadersContentSecurityPolicy(
                    content_security_policy=pages.content_security_policy("wss:"), override=False
                ),
                content_type_options=cloudfront.ResponseHeadersContentTypeOptions(override=True),
                referrer_policy=cloudfront.ResponseHeadersReferrerPolicy(
                    referrer_policy=cloudfront.HeadersReferrerPolicy.NO_REFERRER, override=False
                ),
            ),
        )

    def behaviors(self) -> dict[str, cloudfront.BehaviorOptions]:
        """Scripts and styles are the same for everybody, so CloudFront caches them."""
        cached = cloudfront.BehaviorOptions(
            origin=self.origin,
            cache_policy=cloudfront.CachePolicy.CACHING_OPTIMIZED,
            response_headers_policy=self.headers,
            viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
            compress=True,
        )
        return {_ASSETS: cached}


class PageStack(Stack):
    """The files, with the facts of this relay in them."""

    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id, stack_name=f"{deployment.prefix}page")
        facts = pages.facts_of_deployment(
            Settings.from_env(deployment.environment),
            public_key=told(self, deployment, "public-key"),
            relay_url=told(self, deployment, "relay-url"),
            web_url=told(self, deployment, "web-url"),
        )
        bucket = s3.Bucket.from_bucket_name(self, "Bucket", told(self, deployment, BUCKET))
        deployments = {
            cache: deployment_of_files.BucketDeployment(
                self,
                name,
                destination_bucket=bucket,
                sources=[
                    deployment_of_files.Source.data(
                        file.key,
                        pages.fill(file.read(), facts) if file.is_template else file.read(),
                    )
                    for file in pages.FILES
                    if file.cache == cache
                ],
                cache_control=[deployment_of_files.CacheControl.from_string(cache)],
                # The other deployments' files are in the same bucket, and files of the version
                # before are asked for by pages that are still open.
                prune=False,
            )
            for name, cache in _DEPLOYMENTS.items()
        }
        # A page names the files of its version, so it comes after them.
        pages_last = deployments.pop(pages.ALWAYS_ASK)
        pages_last.node.add_dependency(*deployments.values())
